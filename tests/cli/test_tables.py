"""Tables fit the terminal: ranks are left out, cells cut in the middle or wrapped; without a limit all is whole."""

from __future__ import annotations

from rich.console import Console

from opalite.cli.tables import Column, print_table, shorten, table_lines

COLUMNS = (
    Column("name", least=8),
    Column("ms", right=True),
    Column("why", least=10, wraps=True, rank=1),
    Column("place", rank=2),
)
ROWS = [("a_long_name_of_a_node_1", "1.25", "because it takes the least time", "opencl/NCHW"), ("b", "10.5", "", "")]


def text(room: int) -> list[str]:
    return [line for lines in table_lines(COLUMNS, ROWS, room) for line in lines]


def test_everything_where_there_is_room() -> None:
    lines = text(1000)
    assert len(lines) == 3
    assert lines[1] == "a_long_name_of_a_node_1  1.25  because it takes the least time  opencl/NCHW"
    assert lines[2] == "b                        10.5"


def test_what_does_not_fit_is_wrapped_cut_or_left_out() -> None:
    for room in range(14, 90):
        lines = text(room)
        assert max(map(len, lines)) <= room
        assert any("1.25" in line for line in lines), "columns of rank 0 stay"
    assert len(text(60)) > 3, "the reason takes several lines"
    assert "place" not in text(30)[0]
    assert "why" not in text(20)[0]


def test_names_keep_their_ends() -> None:
    assert shorten("Conv_0_quant", 12) == "Conv_0_quant"
    assert shorten("Conv_0_quant_fused_3", 11) == "Conv_0_…d_3"


def test_a_console_gets_rows_with_markup_as_they_are() -> None:
    console = Console(width=40, markup=True)
    with console.capture() as got:
        print_table(console, [Column("[red]x[/]")], [("[/]n",)])
    assert got.get() == "[red]x[/]\n[/]n\n"
