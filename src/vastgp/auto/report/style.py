"""The style sheet of the report."""

_LIGHT = """--ink: #1a1a1a; --soft: #5a5f66; --page: #f6f7f8; --card: #ffffff; --line: #dfe2e6;
  --model: #0072b2; --accent: #c04f00; --reference: #6f6f6f; --mark: #fff4e5;"""
_DARK = """--ink: #e8eaed; --soft: #a8afb7; --page: #14171a; --card: #1e2226; --line: #363c43;
  --model: #56b4e9; --accent: #f0924f; --reference: #9aa0a6; --mark: #3a2d1c;"""

# One column of cards at any width. Below 600 pixels each row of a table is a block of "name: value" lines, so that
# nothing has to be moved sideways. Print is always light, and cards are not broken over pages.
STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }}
main {{ max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }}
h1 {{ font-size: 1.6rem; line-height: 1.2; margin: 0 0 0.3rem; }}
h2 {{ font-size: 1.15rem; margin: 0 0 0.6rem; }}
h3 {{ font-size: 1rem; margin: 1.2rem 0 0.4rem; }}
p {{ margin: 0.4rem 0; max-width: 46rem; }}
ul {{ margin: 0.4rem 0; padding-left: 1.2rem; max-width: 46rem; }}
.soft, figcaption {{ color: var(--soft); font-size: 0.9rem; }}
section {{ background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1rem 1.1rem; margin-top: 1rem; }}
nav {{ display: flex; flex-wrap: wrap; gap: 0.3rem 1rem; margin-top: 0.8rem; font-size: 0.9rem; }}
a {{ color: var(--model); }}
.tiles {{ display: grid; gap: 0.7rem; margin: 1rem 0 0;
  grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr)); }}
.tiles div {{ background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 0.6rem 0.8rem; }}
.tiles dt {{ color: var(--soft); font-size: 0.85rem; }}
.tiles dd {{ margin: 0; font-size: 1.15rem; font-weight: 600; line-height: 1.3; }}
.figures {{ display: grid; gap: 1rem 1.5rem; margin-top: 0.8rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }}
figure {{ margin: 0; max-width: 31rem; min-width: 0; }}
figure.wide {{ max-width: 44rem; }}
figure svg {{ width: 100%; height: auto; display: block; color: var(--ink); }}
figure svg text {{ fill: var(--ink); font-family: inherit; }}
table {{ border-collapse: collapse; min-width: min(100%, 30rem); margin: 0.4rem 0;
  font-size: 0.92rem; font-variant-numeric: tabular-nums; }}
th, td {{ text-align: left; vertical-align: top; padding: 0.35rem 0.9rem 0.35rem 0.2rem;
  border-bottom: 1px solid var(--line); }}
th {{ overflow-wrap: break-word; color: var(--soft); font-weight: 600; font-size: 0.85rem; }}
.number {{ text-align: right; }}
td.number {{ white-space: nowrap; }}
td:not(.number) {{ min-width: 5rem; }}
td:first-child:not(.number) {{ min-width: 9rem; }}
td:last-child:not(.number) {{ min-width: 10rem; }}
tr.kept td {{ background: var(--mark); }}
tr.kept td:first-child {{ font-weight: 600; }}
.flags li {{ margin: 0.2rem 0; }}
.flags {{ background: var(--mark); border-radius: 8px; padding: 0.5rem 0.8rem 0.5rem 1.9rem; }}
footer {{ color: var(--soft); font-size: 0.85rem; margin-top: 1.2rem; }}
@media (max-width: 600px) {{
  main {{ padding: 1rem 0.6rem 2rem; }}
  section {{ padding: 0.8rem 0.7rem; }}
  .tiles {{ grid-template-columns: 1fr 1fr; }}
  .tiles dd {{ font-size: 0.95rem; }}
  thead {{ display: none; }}
  table, tbody, tr, td {{ display: block; width: 100%; }}
  tr {{ padding: 0.5rem 0; border-bottom: 1px solid var(--line); }}
  td, td.number {{ border: 0; padding: 0.1rem 0.4rem; text-align: left; white-space: normal;
    display: flex; gap: 0.6rem; }}
  td::before {{ content: attr(data-label); color: var(--soft); flex: 0 0 6.8rem; }}
  td > span {{ min-width: 0; }}
  td.none {{ display: none; }}
  td:first-child {{ font-weight: 600; }}
  td:not(.number), td:first-child:not(.number), td:last-child:not(.number) {{ min-width: 0; }}
}}
@media print {{
  :root {{ color-scheme: light; {_LIGHT} --page: #ffffff; }}
  body {{ font-size: 11pt; }}
  nav {{ display: none; }}
  main {{ max-width: none; padding: 0; }}
  section {{ border-color: #bbbbbb; }}
  h2, h3 {{ break-after: avoid; }}
  figure, tr, .tiles div {{ break-inside: avoid; }}
}}
"""
