package kafka

// apis is everything that this door advertises. A row is added together with
// its file and its test; nothing is advertised that does not behave.
var apis = []api{
	{key: 0, min: 0, max: 13, start: (*Door).produce},
	{key: 1, min: 4, max: 18, handle: (*Door).fetch, waits: true},
	{key: 2, min: 1, max: 11, handle: (*Door).listOffsets},
	{key: 3, min: 0, max: 13, handle: (*Door).metadata},
	{key: 8, min: 2, max: 10, handle: (*Door).offsetCommit},
	{key: 9, min: 1, max: 10, handle: (*Door).offsetFetch},
	{key: 10, min: 0, max: 6, handle: (*Door).findCoordinator},
	{key: 11, min: 0, max: 9, handle: (*Door).joinGroup, waits: true},
	{key: 12, min: 0, max: 4, handle: (*Door).heartbeat},
	{key: 13, min: 0, max: 5, handle: (*Door).leaveGroup},
	{key: 14, min: 0, max: 5, handle: (*Door).syncGroup, waits: true},
	{key: 15, min: 0, max: 6, handle: (*Door).describeGroups},
	{key: 16, min: 0, max: 5, handle: (*Door).listGroups},
	{key: 18, min: 0, max: 5, handle: (*Door).apiVersions},
	{key: 19, min: 0, max: 7, handle: (*Door).createTopics},
	{key: 20, min: 0, max: 6, handle: (*Door).deleteTopics},
	{key: 21, min: 0, max: 2, handle: (*Door).deleteRecords},
	{key: 22, min: 0, max: 5, handle: (*Door).initProducerID},
	{key: 23, min: 2, max: 4, handle: (*Door).offsetForLeaderEpoch},
	{key: 35, min: 1, max: 5, handle: (*Door).describeLogDirs},
	{key: 42, min: 0, max: 3, handle: (*Door).deleteGroups},
	{key: 47, min: 0, max: 0, handle: (*Door).offsetDelete},
	{key: 61, min: 0, max: 0, handle: (*Door).describeProducers},
	{key: 75, min: 0, max: 0, handle: (*Door).describeTopicPartitions},
}
