package kafka

// TopicAdmin administers topics; backend_admin.go takes its place.
type TopicAdmin any
