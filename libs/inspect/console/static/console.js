// Follows the page with server-sent events. Without this script, pages are not live.
'use strict';

const live = document.getElementById('live');
const disconnected = document.getElementById('disconnected');
let source;

// morph changes the old element to the new one, so that the focus, the selection and the scroll
// position stay. Children with an id are moved, others are compared in order.
function morph(old, next) {
  if (old.isEqualNode(next)) return;
  if (old.nodeType !== Node.ELEMENT_NODE || old.nodeName !== next.nodeName || old.id !== next.id) {
    old.replaceWith(next);
    return;
  }
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  morphChildren(old, next);
}

function morphChildren(old, next) {
  const byID = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  const wanted = new Set([...next.children].map((child) => child.id).filter(Boolean));
  let at = old.firstChild;
  for (const child of [...next.childNodes]) {
    while (at && at.id && !wanted.has(at.id)) {
      const removed = at;
      at = at.nextSibling;
      removed.remove();
    }
    const known = child.id ? byID.get(child.id) : undefined;
    if (known) {
      // Moving an element takes the focus away from it.
      while (at && at !== known && !at.id) {
        const removed = at;
        at = at.nextSibling;
        removed.remove();
      }
      if (known === at) at = at.nextSibling;
      else old.insertBefore(known, at);
      morph(known, child);
    } else if (!child.id && at && !at.id) {
      const same = at;
      at = at.nextSibling;
      morph(same, child);
    } else {
      old.insertBefore(child, at);
    }
  }
  while (at) {
    const removed = at;
    at = at.nextSibling;
    removed.remove();
  }
}

// The clock of the server counts, as for the times.
const ahead = Date.parse(document.body.dataset.now) - Date.now();

// showAges writes the age of each time. time.go has the same rule.
function showAges(root) {
  for (const element of root.querySelectorAll('time[datetime]')) {
    const seconds = (Date.now() + ahead - Date.parse(element.dateTime)) / 1000;
    const text = seconds < 0 ? 'in ' + size(-seconds) : size(seconds) + ' ago';
    if (element.textContent !== text) element.textContent = text;
  }
}

function size(seconds) {
  if (seconds < 60) return 'less than 1 min';
  if (seconds < 2 * 3600) return Math.floor(seconds / 60) + ' min';
  if (seconds < 48 * 3600) return Math.floor(seconds / 3600) + ' h';
  return Math.floor(seconds / 86400) + ' d';
}

setInterval(() => showAges(document), 10000);

function follow() {
  if (source) source.close();
  source = new EventSource(location.pathname + location.search);
  source.onopen = () => { disconnected.hidden = true; };
  source.onmessage = (message) => {
    const parsed = new DOMParser().parseFromString('<div id="live">' + message.data + '</div>', 'text/html');
    showAges(parsed);
    morphChildren(live, parsed.getElementById('live'));
  };
  // The user is logged out, or may not see the page any more.
  source.addEventListener('reload', () => location.reload());
  source.onerror = () => {
    disconnected.hidden = false;
    // The browser connects again, unless the server has answered with an error.
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, 5000);
  };
}

// A search is a new page for the server, and the same page for the user.
const form = document.querySelector('form[role=search]');
if (form) {
  let timer;
  form.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const parameters = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
      history.replaceState(null, '', parameters.size ? '?' + parameters : location.pathname);
      follow();
    }, 200);
  });
}

// On a phone the navigation is one line that scrolls.
document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });

// The login page sends a message, so that all pages of a user who logs out show it.
new BroadcastChannel('akri-login').onmessage = () => location.reload();

follow();
