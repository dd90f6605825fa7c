"""The mask as one HTML page: nothing loaded from elsewhere, nothing to run, all of each row."""

from html import escape

from ...charts import MARK
from .gate import MaskReport
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
_COLUMNS = ("split", "dataset", "rows", "dropped", "tokens", "supervised")
_SHARES = ("share", "share_min", "share_median", "share_max", "expected_share")


def page(report: MaskReport, title: str) -> str:
    """The whole page."""
    gate = report.gate()
    parts = [
        f"{MARK}<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>mask of {escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>The mask of {escape(title)}: <span class={gate['status']}>{gate['status']}</span></h1>",
        _table(report),
        "<table><tr><th>check<th>status<th class=n>value<th class=n>wanted<th></tr>",
        *(
            f"<tr><td>{escape(c['name'])}<td class={c['status']}>{c['status']}<td class=n>{_cell(c['value'])}"
            f"<td class=n>{_cell(c['want'])}<td>{escape(c['detail'])}</tr>"
            for c in gate["checks"]
        ),
        "</table>",
        *(f"<p><b>Likely cause:</b> {escape(cause)}</p>" for cause in report.causes),
        f"<p><b>If it is meant:</b> <code>{escape(report.confirm)}</code></p>" if report.confirm else "",
        f"<p>{escape(report.note)}</p>" if report.note else "",
        "<h2>Rows, the worst first</h2><p><span class=in>in the loss</span> <span class=out>out of it</span> "
        "<span class=wrong>wrong</span></p>",
        *(_row(row) for row in report.worst),
        "</html>\n",
    ]
    return "\n".join(parts)


def _table(report: MaskReport) -> str:
    if not report.datasets:
        return ""
    head = "".join(f"<th class=n>{name.replace('_', ' ')}" for name in (*_COLUMNS, *_SHARES))
    rows = []
    for one in [*report.datasets, *(report.splits if len(report.datasets) > len(report.splits) else [])]:
        cells = [_cell("all" if one[key] is None else one[key]) for key in _COLUMNS]
        cells += ["-" if one[key] is None else f"{one[key]:.3f}" for key in _SHARES]
        rows.append("<tr>" + "".join(f"<td class=n>{cell}" for cell in cells) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _cell(value: object) -> str:
    return "" if value is None else escape(str(value))


def _row(row: Row) -> str:
    share = "dropped" if row.share is None else f"{row.share:.2f} of {row.tokens} tokens in the loss"
    faults = f"; <span class=fail>{escape(', '.join(row.faults))}</span>" if row.faults else ""
    text, role = [], None
    for piece in row.pieces:
        if piece.role not in (role, "end"):
            role = piece.role
            text.append(f"<span class=role>[{escape(role)}]</span> ")
        kind = "wrong" if piece.wrong else "in" if piece.in_loss else "out"
        text.append(
            f"<span class={kind} title='{escape(piece.role)}, {piece.tokens} tokens'>{escape(piece.text)}</span>"
        )
    head = f"<h3>{escape(row.split)} {escape(row.dataset)} row {row.number}: {share}{faults}</h3>"
    return f"{head}<pre>{''.join(text)}</pre>"
