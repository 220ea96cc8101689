// Package render makes the Pods, Jobs and Services that a Configuration asks for. Names, labels and
// owner references are those of Akri 0.13. It is pure: the same input gives the same object, on
// every replica and after every restart.
package render
