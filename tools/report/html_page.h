// What stands in every HTML report: head, styles and script, which load nothing.

#ifndef TOOLS_REPORT_HTML_PAGE_H_
#define TOOLS_REPORT_HTML_PAGE_H_

namespace kvcheck {

// The policy forbids what the file does not hold, whatever a name in it says.
inline constexpr char kHtmlHead[] =
    R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
)";

// Colours of text have a contrast of 4.5 or more on their ground, in both schemes. Shades of maps
// differ in lightness, away from the ground as errors grow, so that no eye needs their hue.
inline constexpr char kHtmlStyle[] = R"(
:root{color-scheme:light dark;--text:#1f2328;--ground:#fff;--soft:#f6f8fa;--line:#d0d7de;
--good:#1a7f37;--bad:#cf222e;--open:#7d4e00;--link:#0550ae;
--s1:#cfe8cf;--s2:#a3d39c;--s3:#e3cf57;--s4:#ee8300;--s5:#d0281a;--s6:#74001a;
--w1:#2166ac;--w2:#a6cbe3;--w3:#f0b08f;--w4:#b2182b}
@media (prefers-color-scheme:dark){:root{--text:#e6edf3;--ground:#0d1117;--soft:#161b22;
--line:#444c56;--good:#57d364;--bad:#ff8182;--open:#e3b341;--link:#79c0ff;
--s1:#123a20;--s2:#1f6b35;--s3:#867512;--s4:#e08600;--s5:#ff6b5e;--s6:#ffd3d8;
--w1:#6cb2ff;--w2:#23456b;--w3:#6e3524;--w4:#ff8a70}}
*{box-sizing:border-box}
body{margin:0;font:16px/1.5 system-ui,sans-serif;color:var(--text);background:var(--ground)}
main{max-width:75rem;margin:auto;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.25rem;margin-top:2rem}h3{font-size:1rem;overflow-wrap:anywhere}
a{color:var(--link)}
table{border-collapse:collapse;font-size:.875rem}
caption{text-align:left;font-weight:600;padding:.25rem 0}
th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);
font-weight:400;overflow-wrap:anywhere}
thead th{font-weight:600;overflow-wrap:normal}
tbody th{min-width:min(16rem,40vw)}
#results td:last-child{min-width:min(20rem,60vw)}
.hint{margin:.25rem 0}
@media (max-width:40rem){#results,#results tbody{display:block}
#results tr{display:grid;grid-template-columns:auto 1fr;column-gap:.75rem;border-bottom:1px solid var(--line)}
#results tr[hidden]{display:none}#results thead{position:absolute;clip-path:inset(50%)}
#results td,#results th{border:0;padding-right:0}
#results tbody th{min-width:0}#results td:last-child{grid-column:1/-1;min-width:0}}
td.n{text-align:right;white-space:nowrap}
.tag{font-weight:600;white-space:nowrap}
.good{color:var(--good)}.bad{color:var(--bad)}.open{color:var(--open)}
.scroll{overflow-x:auto}
.scroll:focus-visible,button:focus-visible,a:focus-visible,summary:focus-visible,input:focus-visible,
select:focus-visible{outline:2px solid var(--link);outline-offset:2px}
article{border-top:2px solid var(--line);margin-top:1.5rem}
pre,code{font:.8125rem/1.45 ui-monospace,monospace;background:var(--soft)}
pre{padding:.75rem;white-space:pre}code{overflow-wrap:anywhere}
figure{margin:1rem 0}figcaption{font-size:.875rem}
svg{max-width:none;display:block;background:var(--soft)}
.s1{fill:var(--s1)}.s2{fill:var(--s2)}.s3{fill:var(--s3)}.s4{fill:var(--s4)}.s5{fill:var(--s5)}.s6{fill:var(--s6)}
.w1{fill:var(--w1)}.w2{fill:var(--w2)}.w3{fill:var(--w3)}.w4{fill:var(--w4)}
.key svg{display:inline-block;vertical-align:middle;border:1px solid var(--line);margin:0 .25rem 0 .75rem}
form{display:flex;flex-wrap:wrap;gap:.5rem 1rem;margin:1rem 0}
input,select,button{font:inherit;color:inherit;background:var(--soft);border:1px solid var(--line);
border-radius:4px;padding:.2rem .5rem}
[hidden]{display:none}
)";

inline constexpr char kHtmlFilter[] =
    R"(<form id="filter"><label>Show <select id="standing"><option value="">all</option>
<option value="bad">failed</option><option value="open">nothing proved</option>
<option value="good">as it should be</option></select></label>
<label>Name contains <input id="part" type="search" autocomplete="off"></label>
<output id="shown" aria-live="polite"></output></form>
)";

inline constexpr char kHtmlScript[] = R"(
const get=id=>document.getElementById(id),form=get('filter');
if(form){const filter=()=>{const s=get('standing').value,p=get('part').value.toLowerCase();let n=0;
for(const row of get('results').tBodies[0].rows){
const fits=(!s||row.dataset.standing===s)&&row.cells[1].textContent.toLowerCase().includes(p);
row.hidden=!fits;n+=fits;}
get('shown').textContent=n+' shown';};
form.addEventListener('input',filter);form.addEventListener('submit',e=>e.preventDefault());}
for(const button of document.querySelectorAll('[data-copy]'))button.addEventListener('click',()=>{
const code=get(button.dataset.copy),range=document.createRange();range.selectNodeContents(code);
const chosen=getSelection();chosen.removeAllRanges();chosen.addRange(range);
const done=()=>{button.textContent='Copied';setTimeout(()=>button.textContent='Copy',2000);};
if(navigator.clipboard)navigator.clipboard.writeText(code.textContent).then(done,done);
else{document.execCommand('copy');done();}});
)";

}  // namespace kvcheck

#endif  // TOOLS_REPORT_HTML_PAGE_H_
