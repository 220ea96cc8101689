// Functions of tests in a page with the video or the images of cameras, which are named by the address
// of their stream: what the pictures show, and what the page keeps. `camera.go` describes the pictures.
'use strict';

{
  const SQUARE = 16;
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const seen = {};

  const canvasMilliseconds = 50; // between two looks at a canvas, which has no event for each picture

  const elementOf = stream => document.querySelector('figure[data-stream="' + stream + '"] :is(video, canvas)');
  const widthOf = element => element.videoWidth ?? element.width;

  // read returns the milliseconds and the number of the camera in the picture that an element shows.
  const read = element => {
    canvas.canvas.width = widthOf(element);
    canvas.canvas.height = SQUARE;
    canvas.drawImage(element, 0, 0);
    const pixels = canvas.getImageData(0, SQUARE / 2, canvas.canvas.width, 1).data;
    const bytes = [0, 0, 0, 0, 0];
    for (let i = 0; i < 40; i++) {
      const bit = pixels[(i * SQUARE + SQUARE / 2) * 4] > 127 ? 1 : 0;
      bytes[i >> 3] = bytes[i >> 3] << 1 | bit;
    }
    const milliseconds = bytes.slice(0, 4).reduce((value, byte) => value * 256 + byte);
    return [milliseconds, bytes.reduce((a, b) => a ^ b)];
  };

  window.shows = (stream, number) => {
    const element = elementOf(stream);
    if (!element || !widthOf(element)) {
      return false;
    }
    const [milliseconds, camera] = read(element);
    return milliseconds > 0 && camera === number;
  };

  // observe begins a list of the pictures that an element shows: the time at which it shows them, and
  // what they contain.
  window.observe = stream => {
    const element = elementOf(stream);
    seen[stream] = [];
    if (!element || element.observed) {
      return 0;
    }
    element.observed = true;
    const next = () => element.requestVideoFrameCallback?.(observe) ?? setTimeout(observe, canvasMilliseconds);
    const observe = () => {
      if (element !== elementOf(stream)) {
        return;
      }
      const picture = read(element);
      seen[stream].push(Date.now(), ...picture);
      next();
    };
    return next();
  };
  window.seen = stream => seen[stream];

  // color returns the color in the middle of the picture that an element shows, as a number, or -1 if it
  // shows none.
  window.color = stream => {
    const element = elementOf(stream);
    if (!element || !widthOf(element)) {
      return -1;
    }
    canvas.canvas.width = canvas.canvas.height = 1;
    canvas.drawImage(element, widthOf(element) / 2, (element.videoHeight ?? element.height) / 2, 1, 1, 0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return alpha === 255 ? red << 16 | green << 8 | blue : -1;
  };

  window.shown = stream => {
    const quality = elementOf(stream)?.getVideoPlaybackQuality?.();
    return quality ? quality.totalVideoFrames - quality.droppedVideoFrames : 0;
  };
  window.dropped = stream => elementOf(stream)?.getVideoPlaybackQuality?.().droppedVideoFrames ?? 0;

  // buffered returns the seconds of video in memory.
  window.buffered = stream => {
    const ranges = elementOf(stream)?.buffered;
    return ranges?.length ? ranges.end(ranges.length - 1) - ranges.start(0) : 0;
  };
}
1;
