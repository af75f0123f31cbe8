"""What every other room uses: errors and warnings, files, checks, progress."""
