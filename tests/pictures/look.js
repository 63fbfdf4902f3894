// What tests ask a page about its looks.

// The clock stands still, so that a picture is the same on each run.
function stopTheClock(nowMs) {
  const Real = Date;
  Date = class extends Real {
    constructor(...given) { super(...(given.length ? given : [nowMs])); }
    static now() { return nowMs; }
  };
}

// What a reader can't see, or sees twice: texts that their box cuts off, that leave the window, or that lie over another
// one. A box that scrolls may be wider inside on a phone, but not on a screen that has room.
function flaws() {
  const found = new Set(), boxes = [], page = document.documentElement;
  if (page.scrollWidth > innerWidth) found.add(`the page is ${page.scrollWidth} wide`);
  if (innerWidth >= 1280) {
    for (const box of document.querySelectorAll(".scroll")) {
      if (box.scrollWidth > box.clientWidth + 1) found.add(`${box.firstElementChild.id} is cut off`);
    }
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; text = walker.nextNode();) {
    const parent = text.parentElement, said = text.data.trim();
    if (!said || parent.closest("script, style, select, title, [hidden]")) continue;
    if (parent.closest(".scroll, code, .chart p span")) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      if (box.right > innerWidth + 1 || box.left < -1) found.add(`${said} leaves the window`);
      if (box.top < innerHeight) boxes.push([said, box]);
    }
    const hides = getComputedStyle(parent).overflow === "hidden";
    if (hides && parent.scrollWidth > parent.clientWidth + 1) found.add(`${said} is cut off`);
  }
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length; j++) {
      const [one, a] = boxes[i], [other, b] = boxes[j];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 3 && down > 6) found.add(`${one} lies over ${other}`);
    }
  }
  return [...found].slice(0, 10);
}

// The share of tiles of 12 x 12 pixels whose mean colour differs by more than a tenth of the range. A letter that is drawn a
// little differently hardly changes a tile; an element that is elsewhere changes many.
async function difference(...pictures) {
  const tile = 12, most = 26;
  const [a, b] = await Promise.all(pictures.map(async picture => {
    const image = new Image();
    image.src = "data:image/png;base64," + picture;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.ceil(image.width / tile);
    canvas.height = Math.ceil(image.height / tile);
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return context.getImageData(0, 0, canvas.width, canvas.height);
  }));
  if (a.width !== b.width || a.height !== b.height) return 1;
  let differ = 0;
  for (let at = 0; at < a.data.length; at += 4) {
    if ([0, 1, 2].some(colour => Math.abs(a.data[at + colour] - b.data[at + colour]) > most)) differ++;
  }
  return differ * 4 / a.data.length;
}
