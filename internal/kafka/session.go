package kafka

// sessions are the fetch sessions of one connection.
type sessions struct{ door *Door }

func (s *sessions) close() {}
