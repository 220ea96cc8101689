package handlerhttp

// What tests see of the package beside List.
type Device = device

const MaxAnswer = maxAnswer

var Decode = decode
