"""What every room stands on: errors and warnings, files, checks, progress."""
