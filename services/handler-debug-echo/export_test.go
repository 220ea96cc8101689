package debugecho

// DevicesOf exports devicesOf for fuzzing.
var DevicesOf = devicesOf
