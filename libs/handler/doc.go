// Package handler makes a Discovery Handler out of one function.
//
// A handler answers one question: which devices match these details? As a function that is asked again and again
// (Poll) or as one that tells by itself when the answer changes (Watch). The package does the rest of the contract of
// `v0.DiscoveryHandler`: it serves, registers with Akri and stays registered when Akri restarts, sends complete lists
// and never one twice, and answers for its health and metrics.
package handler
