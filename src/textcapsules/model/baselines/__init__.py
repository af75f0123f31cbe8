"""The systems that the paper compares with, each as its authors published it."""
