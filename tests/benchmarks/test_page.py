"""The page: every part has its section, with its table where it ran."""

from page import INTRODUCTION, PARTS, as_page


def test_the_page_is_rendered(pytestconfig):
    ran = {"growth": {"machine": "An abacus", "rows": [{"l": "2", "seconds": "9"}]}}
    text = as_page(ran)
    assert text.startswith(INTRODUCTION)
    assert text.count("\n## ") == len(PARTS) == 1 + text.count("Not run yet.")
    assert "| l | seconds |\n| --- | --- |\n| 2 | 9 |\n\nAn abacus." in text
    for part in PARTS:
        assert f'`make bench ARGS="-k {part}"`' in text
