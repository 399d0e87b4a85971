package kafka

// apis is everything that this door advertises. A row is added together with
// its file and its test; nothing is advertised that does not behave.
var apis = []api{}
