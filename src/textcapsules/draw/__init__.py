"""What reasons and figures look like: pictures, highlighted texts, pages, the report.

`palette`, `pictures`, `pages`, `report`.
"""
