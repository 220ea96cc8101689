package udevdb

/*
#include <malloc.h>
static void use_one_arena(void) { mallopt(M_ARENA_MAX, 1); }
*/
import "C"

// The C library would give each thread memory of its own, and Go calls libudev from whichever thread is free: the memory of
// several looks at all devices would stay with them.
func init() { C.use_one_arena() }
