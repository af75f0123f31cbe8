"""Encodings and delimiters: named, found, and refused in one line."""

import gzip

import pytest

from textcapsules.base.errors import ConfigError, DataError, collect_warnings
from textcapsules.data.table import read_table, stream_table
from textcapsules.data.table_formats import TextFormat, as_utf8, check_format

ROWS = [("1", "Zahlung für “café”, zweimal; ja", "a"), ("2", "x | y\nz", "b")]
EXAMPLES = [(text, (label,)) for _, text, label in ROWS]


def table(delimiter: str, header: str = "id,text,label") -> str:
    lines = [header.replace(",", delimiter)]
    lines += [delimiter.join(f'"{cell}"' for cell in row) for row in ROWS]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiter_is_found_and_told_once(tmp_path, delimiter, quoted):
    header = '"id","text","label"' if quoted else "id,text,label"
    (tmp_path / "t.csv").write_text(table(delimiter, header), encoding="utf-8")
    with collect_warnings() as warnings:
        assert read_table(tmp_path / "t.csv") == EXAMPLES
        assert read_table(tmp_path / "t.csv") == EXAMPLES
        assert read_table(tmp_path / "t.csv", delimiter=delimiter) == EXAMPLES
    shown = "a tab" if delimiter == "\t" else repr(delimiter)
    expected = [f"{tmp_path / 't.csv'}: the cells are read as separated by {shown}"]
    assert [each[: len(expected[0])] for each in warnings] == (
        expected if delimiter != "," else []
    )


# What a comma reads today stays, whatever stands in the cells.
COMMAS = {
    "semicolons in every text": ("text,label\na; b,x\nc; d,y\n", ["a; b", "c; d"]),
    "a single column": ("text\na; b\nc; d\n", ["a; b", "c; d"]),
    "pipes in every text": ('"text","label"\n"a|b",x\n', ["a|b"]),
    "more semicolons than commas": ("text,a;b;c\nx;y,1;2;3\n", ["x;y"]),
    "a blank first line": ("\ntext,label\na;b,x\n", ["a;b"]),
}


@pytest.mark.parametrize(("content", "texts"), COMMAS.values(), ids=COMMAS)
def test_comma_wins_where_it_finds_the_columns(tmp_path, content, texts):
    (tmp_path / "t.csv").write_text(content)
    with collect_warnings() as warnings:
        (batch,) = stream_table(tmp_path / "t.csv")
    assert batch.column("text").to_pylist() == texts
    assert warnings == []


def test_tsv_stays_tsv_unless_told(tmp_path):
    (tmp_path / "t.tsv").write_text("text;label\nx;a\n")
    with pytest.raises(DataError, match="one column 'text'; got text;label"):
        read_table(tmp_path / "t.tsv")
    assert read_table(tmp_path / "t.tsv", delimiter=";") == [("x", ("a",))]


def test_faults_of_such_a_file_are_told_by_its_own_cells(tmp_path):
    (tmp_path / "t.csv").write_text("text;topic\nx;a\n")
    with pytest.raises(DataError, match="one column 'label'; got text, topic"):
        read_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("text;label\nx;a\ny;b;c\n")
    with pytest.raises(DataError, match="3 cells instead of 2 in row 2"):
        read_table(tmp_path / "t.csv")


def test_delimiter_is_found_in_a_file_longer_than_the_sample(tmp_path, monkeypatch):
    monkeypatch.setattr("textcapsules.data.table_formats.SAMPLE", 60)
    rows = "".join(f'{n};"text, {n}\n more, of it";a\n' for n in range(200))
    (tmp_path / "t.csv.gz").write_bytes(
        gzip.compress(f"id;message;label\n{rows}".encode())
    )
    examples = read_table(tmp_path / "t.csv.gz", text_column="message")
    assert [example.text for example in examples] == [
        f"text, {n}\n more, of it" for n in range(200)
    ]


ENCODINGS = ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be"]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.csv.gz"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_named_encoding_is_read_in_pieces(tmp_path, monkeypatch, name, encoding):
    monkeypatch.setattr("textcapsules.data.table_formats.BLOCK", 256)
    texts = [f"Zahlung “für” {n} Cafés" for n in range(300)]
    if "json" in name:
        content = "".join(f'{{"text": "{text}"}}\n' for text in texts)
    else:
        content = "text\n" + "".join(f"{text}\n" for text in texts)
    data = content.encode(encoding)
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    batches = list(stream_table(path, encoding=encoding, batch_rows=50))
    assert [t for batch in batches for t in batch.column("text").to_pylist()] == texts
    assert max(batch.num_rows for batch in batches) <= 50


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_mark_says_the_encoding(tmp_path, encoding):
    (tmp_path / "t.csv").write_text(table(","), encoding=encoding)
    assert read_table(tmp_path / "t.csv") == EXAMPLES
    (tmp_path / "t.jsonl").write_text('{"text": "é", "label": "a"}', encoding=encoding)
    assert read_table(tmp_path / "t.jsonl") == [("é", ("a",))]


OFFERS = {
    "latin-1": ("text,label\nx,a\ncafé,b\n", "0xe9 in line 3.*--encoding latin-1"),
    "cp1252": ("text,label\n“x”,a\n", "0x93 in line 2.*--encoding cp1252"),
    "utf-16-le": ("text,label\nx,a\n", "UTF-16 without one.*--encoding utf-16-le"),
    "utf-16-be": ("text,label\nx,a\n", "UTF-16 without one.*--encoding utf-16-be"),
}


@pytest.mark.parametrize("encoding", OFFERS)
def test_another_encoding_is_told_with_an_offer_that_works(tmp_path, encoding):
    content, message = OFFERS[encoding]
    (tmp_path / "t.csv").write_text(content, encoding=encoding)
    with pytest.raises(DataError, match=message) as caught:
        read_table(tmp_path / "t.csv")
    assert "\n" not in str(caught.value)
    examples = read_table(tmp_path / "t.csv", encoding=encoding)
    lines = content.splitlines()[1:]
    assert [f"{text},{label}" for text, (label,) in examples] == lines


def test_wrong_encoding_is_told_with_its_line(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"text,label\nx,a\n\x81,b\n")
    with pytest.raises(DataError, match="in CP1252; got a byte 0x81 in line 3"):
        read_table(tmp_path / "t.csv", encoding="cp1252")
    (tmp_path / "u.csv").write_bytes("text,label\nx,a\n".encode("utf-16") + b"y")
    with pytest.raises(DataError, match="in UTF-16; got a byte 0x79 in line 3"):
        read_table(tmp_path / "u.csv")


@pytest.mark.parametrize("encoding", ["nonsense", "base64", "", "a\0b"])
def test_unknown_encoding_is_refused(encoding):
    with pytest.raises(ConfigError, match="encoding must be one that Python knows"):
        check_format(TextFormat(encoding=encoding))


@pytest.mark.parametrize("delimiter", ["", "ab", '"', "\n", "é"])
def test_impossible_delimiter_is_refused(delimiter):
    with pytest.raises(ConfigError, match="delimiter must be one character"):
        check_format(TextFormat(delimiter=delimiter))


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("t.jsonl", {"delimiter": ";"}, "delimiter must go with a CSV or TSV file"),
        ("t.parquet", {"delimiter": ";"}, "delimiter must go with a CSV or TSV file"),
        ("t.parquet", {"encoding": "utf-8"}, "encoding must go with a file of text"),
    ],
)
def test_options_that_the_form_does_not_have_are_refused(
    tmp_path, name, options, match
):
    (tmp_path / name).write_text("")
    with pytest.raises(ConfigError, match=match):
        read_table(tmp_path / name, **options)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-32-be"])
def test_other_encodings_are_recoded_into_a_file_of_their_own(tmp_path, encoding):
    """Arrow must not call Python to recode: its thread may outlive the interpreter."""
    path, text = tmp_path / "t.csv", 'text;label\r\n"é\n\x85";1\r\n' * 1000
    path.write_bytes(text.encode(encoding))
    with as_utf8(path, encoding) as plain:
        assert plain != path
        assert plain.read_bytes() == text.encode()
    assert not plain.exists()
    with as_utf8(path, "utf-8") as plain:
        assert plain == path
