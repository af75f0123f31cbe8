"""A trained model at work: judged on labelled texts, applied to whole files."""
