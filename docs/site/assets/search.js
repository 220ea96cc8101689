// Searches the pages that search-index.js lists. A page matches if it contains all words. Pages with
// words in the title come first, then those that contain the words most often.
const root = new URL(".", document.querySelector("link[rel=stylesheet]").href);
const field = document.getElementById("search");
const results = document.getElementById("results");

function search(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found = [];
  for (const page of pages) {
    const title = page.title.toLowerCase();
    const text = page.text.toLowerCase();
    if (!words.every((word) => title.includes(word) || text.includes(word))) continue;
    const inTitle = words.filter((word) => title.includes(word)).length;
    const count = words.reduce((sum, word) => sum + text.split(word).length - 1, 0);
    found.push({ page, position: Math.max(0, text.indexOf(words[0]) - 40), inTitle, count });
  }
  return found.sort((a, b) => b.inTitle - a.inTitle || b.count - a.count).slice(0, 20);
}

field.addEventListener("input", () => {
  const found = search(field.value);
  results.replaceChildren(...found.map(({ page, position }) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = new URL(page.url, root);
    link.textContent = page.title;
    const excerpt = document.createElement("small");
    excerpt.textContent = page.text.slice(position, position + 140);
    item.append(link, excerpt);
    return item;
  }));
  results.hidden = found.length === 0;
});
