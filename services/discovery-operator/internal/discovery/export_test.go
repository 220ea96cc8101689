package discovery

// UseLists is exported for tests.
var UseLists = useLists
