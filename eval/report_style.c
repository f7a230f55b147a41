/* How the page looks: light and dark, on a phone, on paper. Colours differ in lightness, not in hue alone. */
#include "report_parts.h"

static const char colours[] =
    ":root{color-scheme:light dark;--bg:#fbfaf8;--card:#fff;--ink:#1d2328;--soft:#59636c;--rule:#dfe2e4;--faint:#eef0f1;"
    "--accent:#00558c;--mark:#fff3cf;"
    "--c0:#0067a3;--c1:#c34a00;--c2:#007a58;--c3:#a8497f;--c4:#8a6400;--c5:#2f86b5;--c6:#6a4fa3;--c7:#3f474d;"
    "--other:#8b949b;"
    "--h0:#fff8ee;--h1:#fee9cb;--h2:#fdd6a3;--h3:#fcba7f;--h4:#ee8655;--h5:#bd3a1f;--h6:#7a0f12;"
    "--t0:#1d2328;--t1:#1d2328;--t2:#1d2328;--t3:#1d2328;--t4:#1d1005;--t5:#fff;--t6:#fff}\n"
    "@media (prefers-color-scheme:dark){:root{--bg:#14181b;--card:#1b2024;--ink:#e6e9eb;--soft:#a3adb5;--rule:#353d43;"
    "--faint:#242b30;--accent:#7cc0f0;--mark:#3d3413;"
    "--c0:#5cb3ea;--c1:#ff9254;--c2:#45c79b;--c3:#ea94c5;--c4:#e3bb4c;--c5:#a5d8f3;--c6:#b9a3ee;--c7:#d5dade;"
    "--other:#7e8890;"
    "--h0:#1f262b;--h1:#3a2c22;--h2:#5b3a22;--h3:#82491f;--h4:#b5601f;--h5:#ef9143;--h6:#ffd596;"
    "--t0:#e6e9eb;--t1:#e6e9eb;--t2:#f3ece6;--t3:#fff;--t4:#fff;--t5:#1d1005;--t6:#1d1005}}\n";

static const char text[] =
    "*{box-sizing:border-box}html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}"
    "body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,'Segoe "
    "UI',Roboto,sans-serif;"
    "overflow-wrap:break-word}"
    "header,nav,main{max-width:78rem;margin:0 auto;padding:0 1.25rem}"
    "header{padding-top:2.5rem}.over{margin:0;color:var(--accent);font-weight:600;letter-spacing:.04em}"
    "h1{margin:.1rem 0 .2rem;font-size:clamp(1.7rem,5vw,2.5rem);line-height:1.15;letter-spacing:-.015em}"
    ".under{margin:0 0 1rem;color:var(--soft)}"
    "h2{margin:3rem 0 .4rem;font-size:1.45rem;line-height:1.2;letter-spacing:-.01em}"
    "h3{margin:1.6rem 0 .4rem;font-size:1.05rem}p,ul,dl{margin:.4rem 0 .8rem}.lead{max-width:46rem;color:var(--soft)}"
    "a{color:var(--accent)}nav{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.9rem}nav a{text-decoration:none}"
    "nav a:hover{text-decoration:underline}:focus-visible{outline:2px solid var(--accent);outline-offset:2px}"
    "small{font-size:.8em;color:var(--soft)}b{font-weight:650}code{font-family:ui-monospace,Menlo,Consolas,monospace;"
    "font-size:.88em;overflow-wrap:anywhere}\n"
    ".run{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.5rem 1.6rem;margin:1.4rem 0 0;"
    "padding:1rem 1.2rem;background:var(--card);border:1px solid var(--rule);border-radius:10px;font-size:.92rem}"
    ".run dt{color:var(--soft);font-size:.82rem}.run dd{margin:0;overflow-wrap:anywhere}.run .wide{grid-column:1/-1}"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr));gap:1rem;margin:1rem 0}"
    ".card{padding:1rem 1.2rem;background:var(--card);border:1px solid var(--rule);border-top:4px solid var(--accent);"
    "border-radius:10px}.card h3{margin:0;color:var(--soft);font-size:.95rem;font-weight:600}"
    ".card .who{margin:.1rem 0 .3rem;font-size:1.3rem;font-weight:700;line-height:1.25;overflow-wrap:anywhere}"
    ".card p{margin:.35rem 0 0}\n";

static const char tables[] =
    ".scroll{overflow-x:auto;margin:.8rem 0 1.2rem;background:var(--card);border:1px solid var(--rule);border-radius:10px}"
    "table{border-collapse:separate;border-spacing:0;width:100%;font-size:.84rem;font-variant-numeric:tabular-nums}"
    "caption{padding:.7rem .8rem .3rem;text-align:left;font-weight:600;font-size:.95rem}"
    "th,td{padding:.32rem .45rem;text-align:right;vertical-align:top;border-top:1px solid "
    "var(--faint);line-height:1.3}td{white-space:nowrap}"
    "thead th{font-weight:600;color:var(--soft);vertical-align:bottom;border-top:0}thead .group{text-align:center;"
    "color:var(--ink);border-bottom:1px solid var(--rule)}.first{border-left:1px solid var(--rule)}"
    "td small,th small{display:block;white-space:nowrap;font-weight:400}"
    "th[scope=row],.corner{position:sticky;left:0;z-index:1;text-align:left;font-weight:500;background:var(--card);"
    "min-width:10.5rem;max-width:16rem;overflow-wrap:anywhere}"
    ".best{font-weight:700;box-shadow:inset 0 0 0 2px var(--accent);border-radius:4px}"
    ".sure{font-weight:700}.near{color:var(--soft)}"
    ".h0{background:var(--h0);color:var(--t0)}.h1{background:var(--h1);color:var(--t1)}"
    ".h2{background:var(--h2);color:var(--t2)}.h3{background:var(--h3);color:var(--t3)}"
    ".h4{background:var(--h4);color:var(--t4)}.h5{background:var(--h5);color:var(--t5)}"
    ".h6{background:var(--h6);color:var(--t6)}td[class*=h] small{color:inherit}"
    ".key{display:inline-flex;flex-wrap:wrap;gap:.2rem .4rem;font-size:.8rem;margin:.2rem 0 .6rem}"
    ".key span{padding:.05rem .5rem;border-radius:4px}\n";

static const char pictures[] =
    "figure{margin:.8rem 0 1.2rem}figcaption{color:var(--soft);font-size:.88rem;margin:.2rem 0 .3rem}"
    "svg{display:block;height:auto;max-width:100%}.wide-svg svg{width:100%;min-width:44rem;max-width:none}"
    "svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--ink)}svg .tick{fill:var(--soft)}"
    "svg .name{font-weight:600}"
    ".axis,.grid,.lead-line,.path,.front,.whisker{fill:none}.axis{stroke:var(--soft)}.grid{stroke:var(--faint)}"
    ".lead-line{stroke:var(--rule)}.path{stroke-width:1.6;opacity:.75}.front{stroke:var(--ink);stroke-width:1.4;"
    "stroke-dasharray:5 "
    "4;opacity:.6}.whisker{stroke-width:1.2;opacity:.6}.ring{fill:none;stroke:var(--ink);stroke-width:1.6}"
    ".mark{stroke:var(--card);stroke-width:.8;vector-effect:non-scaling-stroke}.open{fill:var(--card);stroke-width:1.8;"
    "vector-effect:non-scaling-stroke}"
    ".mark.c0{fill:var(--c0)}.mark.c1{fill:var(--c1)}.mark.c2{fill:var(--c2)}.mark.c3{fill:var(--c3)}"
    ".mark.c4{fill:var(--c4)}.mark.c5{fill:var(--c5)}.mark.c6{fill:var(--c6)}.mark.c7{fill:var(--c7)}"
    ".mark.other{fill:var(--other)}"
    ".s.c0,.open.c0{stroke:var(--c0)}.s.c1,.open.c1{stroke:var(--c1)}.s.c2,.open.c2{stroke:var(--c2)}"
    ".s.c3,.open.c3{stroke:var(--c3)}.s.c4,.open.c4{stroke:var(--c4)}.s.c5,.open.c5{stroke:var(--c5)}"
    ".s.c6,.open.c6{stroke:var(--c6)}.s.c7,.open.c7{stroke:var(--c7)}.s.other,.open.other{stroke:var(--other)}"
    "rect.h0{fill:var(--h0)}rect.h1{fill:var(--h1)}rect.h2{fill:var(--h2)}rect.h3{fill:var(--h3)}rect.h4{fill:var(--h4)}"
    "rect.h5{fill:var(--h5)}rect.h6{fill:var(--h6)}rect.none{fill:var(--faint)}rect.cell{stroke:var(--card)}"
    "svg .t0{fill:var(--t0)}svg .t1{fill:var(--t1)}svg .t2{fill:var(--t2)}svg .t3{fill:var(--t3)}svg .t4{fill:var(--t4)}"
    "svg .t5{fill:var(--t5)}svg .t6{fill:var(--t6)}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,34rem),1fr));gap:0 1.2rem}"
    ".charts figure{min-width:0}.charts svg{width:100%;min-width:32rem;max-width:none}"
    ".panels{display:flex;flex-wrap:wrap;gap:.6rem 1.2rem}.panels figure{margin:0}.panels figcaption{font-weight:600;"
    "color:var(--ink);font-size:.84rem;max-width:17rem;overflow-wrap:anywhere}\n";

static const char rest[] =
    "details{margin:.5rem 0;background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:0 1rem}"
    "summary{cursor:pointer;padding:.55rem 0;font-weight:600}details[open]{padding-bottom:.8rem}"
    "details .scroll{border:0;margin:0 -1rem}"
    ".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,18rem),1fr));gap:.8rem}"
    ".two h4{margin:0 0 .2rem;font-size:.82rem;color:var(--soft);font-weight:600}"
    ".said{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--faint);border-radius:6px;padding:.6rem .8rem;"
    "font-size:.88rem;max-height:24rem;overflow-y:auto}"
    ".case{margin:1rem 0 1.4rem}.case>p{margin:.2rem 0 .4rem;font-size:.9rem}"
    ".terms dt{font-weight:650;margin-top:.6rem}.terms dd{margin:0 0 0 0;max-width:52rem;color:var(--soft)}"
    "main>section:last-child{padding-bottom:4rem}\n"
    "@media (max-width:40rem){body{font-size:15px}header,nav,main{padding-left:.9rem;padding-right:.9rem}"
    "th[scope=row],.corner{min-width:6.5rem;max-width:8.5rem}}\n"
    "@page{size:A4 landscape;margin:12mm}"
    "@media print{:root{--bg:#fff;--card:#fff}body{font-size:10pt;print-color-adjust:exact;-webkit-print-color-adjust:exact}"
    "nav{display:none}header,main{max-width:none;padding:0}h2{margin-top:1.4rem;break-after:avoid}"
    ".scroll{overflow:visible;border:0}table{font-size:7pt}th,td{padding:.15rem "
    ".25rem}th[scope=row],.corner{position:static;"
    "min-width:0}tr,.card,figure,.case{break-inside:avoid}.wide-svg svg{min-width:0}.said{max-height:none}"
    "details{border:0;padding:0}details::details-content{content-visibility:visible;block-size:auto}}\n";

void page_style(FILE *out) {
	const char *const parts[] = {colours, text, tables, pictures, rest};
	fputs("<style>\n", out);
	for (size_t i = 0; i < sizeof parts / sizeof(const char *); i++) {
		fputs(parts[i], out);
	}
	fputs("</style>\n", out);
}
