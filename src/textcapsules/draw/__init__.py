"""Pictures, highlighted texts, pages and the report."""
