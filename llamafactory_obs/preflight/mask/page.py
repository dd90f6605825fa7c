"""The mask as one HTML page: nothing loaded from elsewhere, nothing to run, all of each row."""

from html import escape

from ...charts import MARK
from ...texts import language, text
from ...texts.sentences import sentence
from .gate import MaskReport
from .terminal import COLUMNS, figures, heading
from .worst import Row

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .7rem;text-align:left;border-bottom:1px solid #ddd}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.pass{color:#0a7d32}.warn{color:#8a6100}.fail,.error{color:#b00020;font-weight:600}.skipped{color:#777}
pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid #ddd;padding:.8rem}
pre{font:13px/1.55 ui-monospace,monospace}
.in{background:#c9f2d3}.out{color:#777}.wrong{background:#ffb3b3;outline:1px solid #b00020}
.role{color:#06c;font-weight:600}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#151515}td,th,pre{border-color:#444}.in{background:#174d27}
.wrong{background:#7a1020}.out{color:#999}.role{color:#6af}.pass{color:#5c5}.warn{color:#db5}.fail,.error{color:#f77}}
"""


def page(report: MaskReport, title: str) -> str:
    """The whole page, in `language()`."""
    gate = report.gate()
    parts = [
        f"{MARK}<html lang={language()}><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(text('mask_page.title', title=title))}</title><style>{_STYLE}</style>",
        f"<h1>{escape(text('mask_page.head', title=title))}",
        f"<span class={gate['status']}>{_word(gate['status'])}</span></h1>",
        _table(report),
        f"<table><tr><th>{text('mask_page.check')}<th>{text('mask_page.status')}",
        f"<th class=n>{text('mask_page.value')}<th class=n>{text('mask_page.wanted')}<th></tr>",
        *(
            f"<tr><td>{escape(c['name'])}<td class={c['status']}>{_word(c['status'])}<td class=n>{_cell(c['value'])}"
            f"<td class=n>{_cell(c['want'])}<td>{escape(c['detail'])}</tr>"
            for c in gate["checks"]
        ),
        "</table>",
        *(f"<p><b>{text('mask_page.cause')}</b>{escape(cause)}</p>" for cause in report.causes),
        f"<p><b>{text('mask_page.meant')}</b><code>{escape(report.confirm)}</code></p>" if report.confirm else "",
        f"<p>{escape(report.note)}</p>" if report.note else "",
        f"<h2>{text('mask_page.rows')}</h2><p>",
        *(f"<span class={kind}>{text(f'mask_page.{kind}')}</span>" for kind in ("in", "out", "wrong")),
        "</p>",
        *(_row(row) for row in report.worst),
        "</html>\n",
    ]
    return "\n".join(parts)


def _table(report: MaskReport) -> str:
    if not report.datasets:
        return ""
    head = "".join(f"<th class=n>{text(f'mask.column.{name}')}" for name in COLUMNS)
    rows = ("<tr>" + "".join(f"<td class=n>{escape(cell)}" for cell in row) + "</tr>" for row in figures(report))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _word(status: str) -> str:
    return text(f"mask.status.{status}")


def _cell(value: object) -> str:
    return "" if value is None else escape(sentence(str(value)))


def _row(row: Row) -> str:
    pieces, role = [], None
    for piece in row.pieces:
        if piece.role not in (role, "end"):
            role = piece.role
            pieces.append(f"<span class=role>[{escape(role)}]</span> ")
        kind = "wrong" if piece.wrong else "in" if piece.in_loss else "out"
        hover = escape(text("mask_page.piece", role=piece.role, tokens=piece.tokens))
        pieces.append(f"<span class={kind} title='{hover}'>{escape(piece.text)}</span>")
    head, faults = map(escape, heading(row))
    return f"<h3>{head}<span class=fail>{faults}</span></h3><pre>{''.join(pieces)}</pre>"
