// Functions of tests in a page with the video of cameras, which are named by the address of their
// stream: what the pictures show, and what the page keeps. `camera.go` describes the pictures.
'use strict';

{
  const SQUARE = 16;
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const seen = {};

  const videoOf = stream => document.querySelector('figure[data-stream="' + stream + '"] video');

  // read returns the milliseconds and the number of the camera in the picture that a video shows.
  const read = video => {
    canvas.canvas.width = video.videoWidth;
    canvas.canvas.height = SQUARE;
    canvas.drawImage(video, 0, 0);
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
    const video = videoOf(stream);
    if (!video?.videoWidth) {
      return false;
    }
    const [milliseconds, camera] = read(video);
    return milliseconds > 0 && camera === number;
  };

  // observe begins a list of the pictures that a video shows: the time at which it shows them, and
  // what they contain.
  window.observe = stream => {
    const video = videoOf(stream);
    seen[stream] = [];
    if (!video || video.observed) {
      return 0;
    }
    video.observed = true;
    const observe = () => {
      const picture = read(video);
      seen[stream].push(Date.now(), ...picture);
      video.requestVideoFrameCallback(observe);
    };
    return video.requestVideoFrameCallback(observe);
  };
  window.seen = stream => seen[stream];

  window.shown = stream => {
    const quality = videoOf(stream)?.getVideoPlaybackQuality();
    return quality ? quality.totalVideoFrames - quality.droppedVideoFrames : 0;
  };
  window.dropped = stream => videoOf(stream)?.getVideoPlaybackQuality().droppedVideoFrames ?? 0;

  // buffered returns the seconds of video in memory.
  window.buffered = stream => {
    const ranges = videoOf(stream)?.buffered;
    return ranges?.length ? ranges.end(ranges.length - 1) - ranges.start(0) : 0;
  };
}
1;
