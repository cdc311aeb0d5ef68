# SPDX-License-Identifier: Apache-2.0
"""The report: one HTML file that needs nothing else."""

from html import escape

from . import page, pictures

STYLE = """body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 90em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px }
th, td { border: 1px solid #ccc; padding: 3px 7px; text-align: left }
th { background: #eef2f5 } tr:nth-child(even) td { background: #fafafa } svg { max-width: 100%; height: auto }"""


def html_table(table):
    head = "".join(f"<th>{escape(c)}</th>" for c in table.head)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in table.rows)
    return f"<h2>{escape(table.title)}</h2>\n<p>{escape(table.about)}</p>\n<table>\n<tr>{head}</tr>\n{body}\n</table>\n"


def html(report, tables):
    paragraphs = "\n".join(f"<p>{escape(text)}</p>" for text in (*page.HOW, *page.sentences(report)))
    plots = filter(None, (pictures.picture(kind, report["summary"]) for kind in report["summary"]))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>SplitFS: evaluation</title>\n'
        f"<style>{STYLE}</style>\n"
        f"</head>\n<body>\n<h1>Evaluation</h1>\n{paragraphs}\n"
        + "\n".join(plots)
        + "\n"
        + "".join(html_table(t) for t in tables)
        + "</body>\n</html>\n"
    )
