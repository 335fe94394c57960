"""What we run in pages, in a world of our own: the page sees the same document, but none of our functions, and its own
changes to `Element.prototype` and the like are not ours. Whatever comes back was made from what the page shows."""

from typing import Final

READY: Final = """async function() {
  const e = this.nodeType === 1 ? this : this.parentElement;
  if (!e || !e.isConnected) return {state: 'gone'};
  if (e.scrollIntoViewIfNeeded) e.scrollIntoViewIfNeeded(true); else e.scrollIntoView({block: 'center'});
  const rect = () => { const r = [...e.getClientRects()].find(r => r.width && r.height) || e.getBoundingClientRect();
    return [r.x, r.y, r.width, r.height]; };
  const frame = () => new Promise(done => { requestAnimationFrame(() => done()); setTimeout(done, 100); });
  let at = rect(), still = false;
  for (let i = 0; i < 30 && !still; i++) { await frame(); const b = rect(); still = String(at) === String(b); at = b; }
  if (!still) return {state: 'moving'};
  const style = getComputedStyle(e);
  if (!at[2] || !at[3] || style.visibility !== 'visible') return {state: 'hidden'};
  if (e.matches(':disabled')) return {state: 'disabled'};
  const left = Math.max(0, at[0]), top = Math.max(0, at[1]);
  const right = Math.min(innerWidth, at[0] + at[2]), bottom = Math.min(innerHeight, at[1] + at[3]);
  if (right <= left || bottom <= top) return {state: 'outside'};
  const x = (left + right) / 2, y = (top + bottom) / 2;
  const hit = e.getRootNode().elementFromPoint(x, y);
  let n = hit;
  while (n && n !== e) n = n.assignedSlot || n.parentNode || n.host;
  const label = hit && hit.closest && hit.closest('label');
  if (n !== e && !(label && label.control === e) && !(hit && e.shadowRoot && e.shadowRoot.contains(hit))) {
    const s = hit ? '<' + hit.tagName.toLowerCase() + (hit.id ? ' id=' + hit.id : '') + '>' : 'nothing';
    return {state: 'covered', by: s.slice(0, 100)};
  }
  return {state: 'ready', x, y, box: at};
}"""

OWNER: Final = """function(x, y) {
  const r = this.getBoundingClientRect(), s = getComputedStyle(this);
  const left = r.x + this.clientLeft + parseFloat(s.paddingLeft), top = r.y + this.clientTop + parseFloat(s.paddingTop);
  const hit = this.getRootNode().elementFromPoint(left + x, top + y);
  return {x: left + x, y: top + y, open: hit === this, by: hit ? hit.tagName.toLowerCase() : 'nothing'};
}"""

FOCUS: Final = "function() { (this.nodeType === 1 ? this : this.parentElement).focus(); }"

CLEAR: Final = """function() {
  const e = this;
  e.focus();
  if (e.isContentEditable) { getSelection().selectAllChildren(e); return true; }
  if ('value' in e && !e.readOnly && !e.disabled) { if (e.select) e.select(); return true; }
  return false;
}"""

SELECT: Final = """function(wanted) {
  if (this.tagName !== 'SELECT') return {error: 'it is no list of choices'};
  const options = [...this.options];
  const found = [];
  for (const w of wanted) {
    const o = options.find(o => o.value === w) || options.find(o => o.label.trim() === w);
    if (!o) return {error: 'it has no choice ' + JSON.stringify(w).slice(0, 100),
      choices: options.slice(0, 50).map(o => o.label.trim().slice(0, 60))};
    found.push(o);
  }
  if (found.length > 1 && !this.multiple) return {error: 'it takes one choice'};
  if (this.multiple) for (const o of options) o.selected = false;
  for (const o of found) o.selected = true;
  this.dispatchEvent(new Event('input', {bubbles: true}));
  this.dispatchEvent(new Event('change', {bubbles: true}));
  return {chosen: found.map(o => o.label.trim().slice(0, 100))};
}"""

QUERY: Final = """(selector) => {
  const found = [];
  const roots = [document];
  while (roots.length && found.length < 20) {
    const root = roots.shift();
    for (const e of root.querySelectorAll(selector)) if (found.length < 20) found.push(e);
    for (const e of root.querySelectorAll('*')) if (e.shadowRoot) roots.push(e.shadowRoot);
  }
  return found;
}"""

TEXT: Final = (
    "(from, most) => { const t = document.body ? document.body.innerText : ''; "
    "return [t.slice(from, from + most), t.length]; }"
)

OWN_TEXT: Final = (
    "function(from, most) { const t = this.innerText ?? this.textContent ?? ''; "
    "return [t.slice(from, from + most), t.length]; }"
)

HTML: Final = (
    "(from, most) => { const t = document.documentElement ? document.documentElement.outerHTML : ''; "
    "return [t.slice(from, from + most), t.length]; }"
)

OWN_HTML: Final = (
    "function(from, most) { const t = this.outerHTML ?? this.textContent ?? ''; "
    "return [t.slice(from, from + most), t.length]; }"
)

_MARKDOWN: Final = """
  const block = new Set(('ADDRESS ARTICLE ASIDE BLOCKQUOTE DETAILS DIV DL FIELDSET FIGURE FOOTER FORM HEADER HR LI ' +
    'MAIN NAV OL P PRE SECTION TABLE UL TR').split(' '));
  const skip = /^(SCRIPT|STYLE|NOSCRIPT|TEMPLATE|SVG|HEAD|IFRAME|OBJECT)$/i;
  const out = []; let size = 0;
  const put = s => { if (size < 4000000) { out.push(s); size += s.length; } };
  const walk = (n, depth, pre) => {
    if (depth > 200 || size >= 4000000) return;
    if (n.nodeType === 3) { put(pre ? n.data : n.data.replace(/\\s+/g, ' ')); return; }
    if (n.nodeType !== 1 && n.nodeType !== 11) return;
    const t = n.tagName || '';
    if (skip.test(t)) return;
    const s = n.nodeType === 1 ? getComputedStyle(n) : {};
    if (s.display === 'none' || s.visibility === 'hidden') return;
    const kids = (p) => { for (const c of (n.shadowRoot || n).childNodes) walk(c, depth + 1, p); };
    if (/^H[1-6]$/.test(t)) { put('\\n\\n' + '#'.repeat(+t[1]) + ' '); kids(pre); put('\\n\\n'); }
    else if (t === 'BR') put('\\n');
    else if (t === 'HR') put('\\n\\n---\\n\\n');
    else if (t === 'A' && n.href) { put('['); kids(pre); put('](' + n.href.slice(0, 2000) + ')'); }
    else if (t === 'IMG') { if (n.alt) put('![' + n.alt + ']'); }
    else if (t === 'PRE') { put('\\n\\n```\\n'); kids(true); put('\\n```\\n\\n'); }
    else if (t === 'CODE' && !pre) { put('`'); kids(pre); put('`'); }
    else if (t === 'STRONG' || t === 'B') { put('**'); kids(pre); put('**'); }
    else if (t === 'EM' || t === 'I') { put('*'); kids(pre); put('*'); }
    else if (t === 'LI') { const o = n.parentNode && n.parentNode.tagName === 'OL';
      put('\\n' + (o ? '1. ' : '- ')); kids(pre); }
    else if (t === 'TR') { put('\\n|'); for (const c of n.cells) { put(' '); walk(c, depth + 1, pre); put(' |'); }
      if (n.rowIndex === 0) put('\\n|' + ' --- |'.repeat(n.cells.length)); }
    else if (t === 'TD' || t === 'TH') kids(pre);
    else if (/^(INPUT|TEXTAREA|SELECT)$/.test(t)) { if (n.type !== 'password' && n.value) put(n.value); }
    else if (block.has(t)) { put('\\n\\n'); kids(pre); put('\\n\\n'); }
    else kids(pre);
  };
  walk(root, 0, false);
  const t = out.join('').replace(/[ \\t]+\\n/g, '\\n').replace(/\\n{3,}/g, '\\n\\n').trim();
  return [t.slice(from, from + most), t.length];
"""
MARKDOWN: Final = f"(from, most) => {{ const root = document.body || document.documentElement; {_MARKDOWN} }}"
OWN_MARKDOWN: Final = f"function(from, most) {{ const root = this; {_MARKDOWN} }}"

LINKS: Final = """(from, most) => {
  const all = [...document.querySelectorAll('a[href], area[href]')];
  return [all.slice(from, from + most).map(a => [(a.innerText || a.title || '').trim().slice(0, 200),
    String(a.href).slice(0, 2000)]), all.length];
}"""

FORMS: Final = """(from, most) => {
  const cut = s => String(s ?? '').slice(0, 200);
  const field = e => ({name: cut(e.name || e.id), kind: cut(e.type || e.tagName.toLowerCase()), required: !!e.required,
    disabled: !!e.disabled, label: cut(e.labels && e.labels[0] && e.labels[0].innerText.trim()),
    value: e.type === 'password' ? (e.value ? '(hidden)' : '') : cut(e.value),
    ...(e.options ? {choices: [...e.options].slice(0, 50).map(o => cut(o.label))} : {})});
  const all = [...document.forms];
  return [all.slice(from, from + most).map(f => ({name: cut(f.name || f.id), method: cut(f.method),
    action: cut(f.action), fields: [...f.elements].slice(0, 200).map(field)})), all.length];
}"""

LABELS: Final = """function(items) {
  const host = document.createElement('ringfence-labels');
  host.style.cssText = 'all:initial;position:fixed;left:0;top:0;z-index:2147483647;pointer-events:none';
  const root = host.attachShadow({mode: 'closed'});
  for (const [ref, x, y, w, h] of items) {
    const b = document.createElement('div');
    b.style.cssText = `position:fixed;left:${x}px;top:${y}px;width:${w}px;height:${h}px;` +
      'outline:2px solid #d0021b;box-sizing:border-box';
    const l = document.createElement('div');
    l.textContent = ref;
    l.style.cssText = `position:fixed;left:${Math.max(0, x)}px;top:${Math.max(0, y - 13)}px;background:#d0021b;` +
      'color:#fff;font:bold 11px/13px sans-serif;padding:0 3px';
    root.append(b, l);
  }
  document.documentElement.append(host);
  globalThis.__ringfence_labels = host;
}"""
UNLABEL: Final = "() => { if (globalThis.__ringfence_labels) globalThis.__ringfence_labels.remove(); }"
BOX: Final = "function() { const r = this.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }"
PAGE_BOX: Final = (
    "function() { this.scrollIntoViewIfNeeded && this.scrollIntoViewIfNeeded(true); "
    "const r = this.getBoundingClientRect(); return [r.x + scrollX, r.y + scrollY, r.width, r.height]; }"
)
SCROLL: Final = """(dx, dy) => {
  const before = [scrollX, scrollY];
  scrollBy({left: dx, top: dy, behavior: 'instant'});
  return before[0] !== scrollX || before[1] !== scrollY;
}"""
HAS_TEXT: Final = "(text) => !!document.body && document.body.innerText.includes(text)"
STORAGE: Final = """(kind, values, clear) => {
  const s = kind === 'session' ? sessionStorage : localStorage;
  if (clear) s.clear();
  for (const [k, v] of Object.entries(values || {})) { if (v === null) s.removeItem(k); else s.setItem(k, v); }
  const one = k => [k.slice(0, 500), String(s.getItem(k)).slice(0, 5000)];
  return Object.fromEntries(Object.keys(s).slice(0, 500).map(one));
}"""
