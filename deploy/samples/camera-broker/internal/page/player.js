// Plays the video of each camera: JPEG images on a canvas, MP4 with Media Source Extensions. A stream
// that ends is opened again. An <img> would not report the end of its images.
'use strict';

const retryMilliseconds = 2000;
const listMilliseconds = 5000;
const maxDelaySeconds = 1;    // behind the newest frame; more is skipped
const delaySeconds = 0.3;     // more is caught up by playing faster
const keptSeconds = 20;       // behind the frame that is shown
const maxHeaderBytes = 1024;  // of a part of a stream of images

for (const figure of document.querySelectorAll('figure')) {
  play(figure);
}
setInterval(list, listMilliseconds);

// list adds cameras that are new, and removes those that have no broker.
async function list() {
  let page;
  try {
    const response = await fetch('.');
    if (!response.ok) {
      return;
    }
    page = new DOMParser().parseFromString(await response.text(), 'text/html');
  } catch {
    return; // the server is away; the streams show it
  }
  const shown = new Map([...document.querySelectorAll('figure')].map(figure => [figure.dataset.stream, figure]));
  for (const figure of page.querySelectorAll('figure')) {
    if (!shown.delete(figure.dataset.stream)) {
      play(document.querySelector('.cameras').appendChild(document.adoptNode(figure)));
    }
  }
  for (const figure of shown.values()) {
    figure.remove();
  }
  document.querySelector('.none').hidden = document.querySelector('figure') !== null;
}

async function play(figure) {
  const status = figure.querySelector('[role=status]');
  while (figure.isConnected) {
    try {
      await open(figure, status);
      status.textContent = 'the stream has ended; connecting';
    } catch (error) {
      status.textContent = error.message;
    }
    await new Promise(resolve => setTimeout(resolve, retryMilliseconds));
  }
}

async function open(figure, status) {
  const abort = new AbortController();
  const response = await fetch(figure.dataset.stream, {signal: abort.signal});
  if (!response.ok) {
    throw new Error((await response.text()).trim());
  }
  const type = response.headers.get('Content-Type');
  try {
    await showerOf(type)(figure, status, response.body.getReader(), type);
  } finally {
    abort.abort();
  }
}

// showerOf returns the function that shows streams of a type.
function showerOf(type) {
  if (type.startsWith('multipart/')) {
    return showImages;
  }
  if (window.MediaSource && MediaSource.isTypeSupported(type)) {
    return showVideo;
  }
  const codec = type.includes('hvc1') ? 'H.265' : 'this video';
  throw new Error(`This browser cannot play ${codec} (${type}). Set the camera or PROFILE to H.264.`);
}

function show(figure, element) {
  figure.querySelector('.picture').replaceChildren(element);
}

// showImages shows the newest image that has arrived. Each is a part of the stream.
async function showImages(figure, status, reader) {
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d');
  show(figure, canvas);
  let data = new Uint8Array();
  for (;;) {
    const {done, value} = await reader.read();
    if (done || !figure.isConnected) {
      return;
    }
    data = concatenate(data, value);
    let newest = null;
    for (let part = firstPart(data); part; part = firstPart(data)) {
      newest = part.image;
      data = data.subarray(part.end);
    }
    if (newest) {
      const bitmap = await createImageBitmap(new Blob([newest]));
      [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
      context.drawImage(bitmap, 0, 0);
      bitmap.close();
      status.textContent = '';
    }
  }
}

function concatenate(a, b) {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

// firstPart returns the image of the first part, and where the part ends. It returns null if the part
// is not complete.
function firstPart(data) {
  const text = new TextDecoder('latin1').decode(data.subarray(0, maxHeaderBytes));
  const header = text.split('\r\n\r\n', 1)[0];
  if (header.length === text.length) {
    if (text.length === maxHeaderBytes) {
      throw new Error('the images cannot be read: a part has no header');
    }
    return null;
  }
  const length = header.match(/^content-length: *(\d+)$/im);
  if (!length) {
    throw new Error('the images cannot be read: a part has no length');
  }
  const start = header.length + 4;
  const end = start + Number(length[1]);
  return end > data.length ? null : {image: data.subarray(start, end), end};
}

async function showVideo(figure, status, reader, type) {
  const source = new MediaSource();
  const video = document.createElement('video');
  video.muted = true; // browsers start only silent videos
  video.autoplay = true;
  video.playsInline = true;
  video.src = URL.createObjectURL(source);
  video.onplaying = () => { status.textContent = ''; };
  show(figure, video);
  try {
    await once(source, 'sourceopen');
    const buffer = source.addSourceBuffer(type);
    for (;;) {
      const {done, value} = await reader.read();
      if (done || !figure.isConnected) {
        return;
      }
      if (video.error) {
        throw new Error(`the video cannot be played: ${video.error.message}`);
      }
      buffer.appendBuffer(value);
      await once(buffer, 'updateend');
      await follow(video, buffer);
    }
  } finally {
    URL.revokeObjectURL(video.src);
  }
}

// follow shows the newest frames and drops the old ones.
async function follow(video, buffer) {
  const ranges = video.buffered;
  if (ranges.length === 0) {
    return;
  }
  const last = ranges.length - 1;
  const end = ranges.end(last);
  if (video.currentTime < ranges.start(last) || end - video.currentTime > maxDelaySeconds) {
    video.currentTime = Math.max(ranges.start(last), end - 0.1);
  }
  video.playbackRate = end - video.currentTime > delaySeconds ? 1.1 : 1;
  if (video.paused) {
    video.play().catch(() => {}); // the browser starts it when the user allows it
  }
  const old = video.currentTime - keptSeconds;
  if (ranges.start(0) < old - keptSeconds) {
    buffer.remove(0, old);
    await once(buffer, 'updateend');
  }
}

// once waits for an event. It replaces the handlers of the last call: a video has an event for each
// frame, and added listeners would stay.
function once(target, name) {
  return new Promise((resolve, reject) => {
    target['on' + name] = resolve;
    target.onerror = () => reject(new Error('the video cannot be played'));
  });
}
