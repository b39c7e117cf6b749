"""CSV files that went wrong somewhere, and any other bytes: the right sum or the right sentence, never an exception."""

import csv
import io
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentlib import csvdata, inputs
from agentlib.messages import use_language
from agentlib.tools import analyze_csv
from bench.bench_csv import with_dictreader

DATA = Path(__file__).parent / "data"
CASES = json.loads((DATA / "csv_cases.json").read_text(encoding="utf-8"))
HEADER = "category,quantity,unit_price\n"
ODD_NAMES = ("__proto__", "None", "NaN", "total", "rows", "x" * 10_000)
MADE = {
    "c28-field-too-long.csv": HEADER + '"' + "x" * 131_073 + '",2,5\n',
    "c32-many-categories.csv": HEADER + "".join(f"item{n:05},1,1\n" for n in range(20_000)),
    "c35-odd-names.csv": HEADER + "".join(f"{name},1,1\n" for name in ODD_NAMES),
    "c58-too-many-digits.csv": HEADER + "veg,3,4\nfruit," + "9" * 5000 + ",5\n",
}
CODES = {"PATH_NOT_ALLOWED", "FILE_NOT_FOUND", "INVALID_ROW", "EMPTY_CSV", "INVALID_CSV"}


def folder_below(root, patch):
    folder = root / "data" / "input"
    folder.mkdir(parents=True)
    patch.setenv("AGENTLAB_ROOT", str(root))
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return folder_below(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield folder_below(tmp_path_factory.mktemp("lab"), patch)


def sums(folder, content):
    (folder / "case.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    return analyze_csv("case.csv")


def outcome(result):
    return result["error"]["code"] if result["error"] else "ok"


def revenue(result):
    return {item["category"]: item["revenue"] for item in result["data"]["revenue_by_category"]}


def is_sound(result):
    """Strict JSON of the shape that DESIGN promises."""
    json.dumps(result, ensure_ascii=False, allow_nan=False).encode("utf-8")
    assert list(result) == ["status", "data", "source", "error"]
    if result["status"] == "error":
        assert result["data"] is None
        assert result["error"]["code"] in CODES
        assert result["error"]["message"]
        return True
    data = result["data"]
    amounts = [item["revenue"] for item in data["revenue_by_category"]]
    assert result["error"] is None
    assert sum(amounts) == data["total_revenue"]
    assert amounts == sorted(amounts, reverse=True)
    assert data["revenue_by_category"][0] == {"category": data["top_category"], "revenue": data["top_revenue"]}
    assert data["row_count"] >= len(amounts) > 0
    return True


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
def test_case(case, language, folder):
    use_language(language)
    content = MADE.get(case["file"]) or (DATA / "csv" / case["file"]).read_bytes()
    result = sums(folder, content)
    assert outcome(result) == case["code"], case["about"]
    assert is_sound(result)
    assert result["source"] == ["data/input/case.csv"]
    if case["code"] == "ok":
        assert result["data"]["row_count"] == case["rows"]
        assert revenue(result) == case.get("revenue", revenue(result))
    else:
        message = result["error"]["message"]
        assert "case.csv" in message
        assert all(words in message for words in case.get("says", {}).get(language, [])), message
        assert str(folder) not in message


def test_odd_names_stay_names(folder):
    result = sums(folder, MADE["c35-odd-names.csv"])
    assert revenue(result) == dict.fromkeys(ODD_NAMES, 1)
    assert result["data"]["total_revenue"] == 6


def test_equal_revenues_stand_by_name(folder):
    result = sums(folder, HEADER + "b,1,1\na,1,1\nc,1,2\n")
    assert list(revenue(result)) == ["c", "a", "b"]


def test_columns_in_any_order_among_others(folder):
    result = sums(folder, "note,unit_price,,category,quantity,\n,5,,fruit,2,\nx,4,,veg,3,\n,,,,,\n")
    assert revenue(result) == {"veg": 12, "fruit": 10}


def test_eighteen_digits_are_exact(folder):
    most = "9" * 18
    assert sums(folder, f"{HEADER}gold,{most},{most}\n")["data"]["total_revenue"] == int(most) ** 2
    assert outcome(sums(folder, f"{HEADER}gold,1{most},1\n")) == "INVALID_ROW"


def test_rows_count_as_excel_counts_them(folder):
    body = 'a,1,1\n\n"two\nlines",1,1\n,,\nb,1,x\n'
    assert "row 6 " in sums(folder, HEADER + body)["error"]["message"]
    for before in (99, 100, 101, 250):
        assert f"row {before + 2} " in sums(folder, HEADER + "a,1,1\n" * before + "a,1,-1\n")["error"]["message"]
        assert f"row {before + 2} " in sums(folder, HEADER + "a,1,1\n" * before + 'a,"1"2,1\n')["error"]["message"]


def test_the_first_fault_is_told(folder):
    assert outcome(sums(folder, HEADER + 'a,x,1\n"never closed,1,1\n')) == "INVALID_ROW"


def test_a_category_needs_a_name(folder):
    message = sums(folder, HEADER + "a,1,1\n  ,1,1\n")["error"]["message"]
    assert "row 3" in message
    assert "category" in message


def test_line_ends_of_every_system(folder):
    for end in ("\n", "\r\n", "\r"):
        assert revenue(sums(folder, (HEADER + "a,1,2\nb,3,4\n").replace("\n", end))) == {"a": 2, "b": 12}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "gb18030", "big5"])
def test_other_encodings(encoding, folder):
    assert outcome(sums(folder, (HEADER + "鍵盤,1,2\n").encode(encoding))) == "INVALID_CSV"


def test_bytes_that_are_not_utf8_far_down(folder):
    assert outcome(sums(folder, (HEADER + "a,1,1\n" * 50_000).encode() + b"\xff,1,1\n")) == "INVALID_CSV"


def test_memory_does_not_grow_with_the_file(folder):
    def peak(content):
        tracemalloc.start()
        sums(folder, "")
        (folder / "case.csv").write_bytes(content)
        del content
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = analyze_csv("case.csv")
        _, after = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return outcome(result), after - before

    code, bytes_used = peak(HEADER.encode() + b"fruit,2,5\n" * 50_000)
    assert code == "ok"
    assert bytes_used < 300_000
    code, bytes_used = peak(b"x," * 10_000_000)  # one line that never ends
    assert code == "INVALID_CSV"
    assert bytes_used < 10_000_000


@settings(max_examples=300)
@given(content=st.binary(max_size=300))
def test_any_bytes(one_folder, content):
    assert is_sound(sums(one_folder, content))
    assert is_sound(sums(one_folder, HEADER.encode() + content))


names = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=12).filter(str.strip)
numbers = st.integers(0, 10**18 - 1)
blanks = st.sampled_from(["", " ", "\t", "\u3000"])


@st.composite
def valid_files(draw):
    """A valid file in one of the many ways to write it, and the sales in it."""
    sales = draw(st.lists(st.tuples(names, numbers, numbers), min_size=1, max_size=20))
    order = draw(st.permutations(["category", "quantity", "unit_price", "note"]))
    out = io.StringIO()
    writer = csv.writer(
        out,
        quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
        lineterminator=draw(st.sampled_from(["\n", "\r\n"])),
    )
    writer.writerow(draw(st.sampled_from([str.upper, str.title, str.lower]))(name) for name in order)
    for category, quantity, price in sales:
        row = {
            "category": category,
            "quantity": f"{draw(blanks)}{quantity}{draw(blanks)}",
            "unit_price": str(price),
            "note": draw(st.sampled_from(["", "x", "1,5"])),
        }
        writer.writerow(row[name] for name in order)
        if draw(st.booleans()):
            writer.writerow(draw(st.sampled_from([[], [" "], ["", "", "", ""]])))
    return draw(st.sampled_from(["utf-8", "utf-8-sig"])), out.getvalue(), sales


@given(valid_files())
def test_valid_files_against_a_plain_sum(one_folder, file):
    encoding, content, sales = file
    wanted = {}
    for category, quantity, price in sales:
        wanted[category.strip()] = wanted.get(category.strip(), 0) + quantity * price
    result = sums(one_folder, content.encode(encoding))
    assert is_sound(result)
    assert revenue(result) == wanted
    assert result["data"]["row_count"] == len(sales)


def read_both_ways(content):
    """The rules of ``csvdata`` are written a second time in the benchmark: both must say the same."""

    def told(read):
        try:
            return read(io.StringIO(content, newline=""))
        except inputs.DataError as problem:
            return problem.code

    assert told(csvdata.revenue_by_category) == told(with_dictreader)


headers = st.sampled_from(["", HEADER, "\n" + HEADER, "quantity, category ,,Unit_Price\n"])
pieces = st.sampled_from([*'a键",,,\n\n\r 05_-+.;', "\t", "\x1c", "\u3000", "\ufeff", "\n,,\n", ",1,2\n", '"x",3,4\n'])


@settings(max_examples=500)
@given(header=headers, body=st.lists(pieces))
@example(header=HEADER, body=['"x",3,4\n'] * 150 + [",1,2\n"])
def test_any_text_read_both_ways(header, body):
    read_both_ways(header + "".join(body))


digits = ["1", " 2", "3\t", "\u30004\x1c", "0", "007", "9" * 18]
odd = ["", " ", "-1", "+1", "1.0", "1_0", "1,299", "1\n2", "１", "²", "1 2", "\u00a0", "9" * 19, "0" * 19, "a"]
cells = st.sampled_from([*digits * 3, *odd])


@settings(max_examples=500)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b ", "1", "", " "]), cells, cells), max_size=4), st.sampled_from([0, 99])
)
def test_odd_cells_read_both_ways(rows, before):
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    read_both_ways(HEADER + "a,1,2\n" * before + out.getvalue())
