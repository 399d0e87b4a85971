package group

import (
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// SetTopics brings a new view of the topics: groups that read what changed begin
// a new epoch.
func (c *Coordinator) SetTopics(now time.Time, topics *Topics) Effects {
	c.now = now
	if c.topics != nil && topics.Index < c.topics.Index {
		return c.take()
	}
	c.topics = topics
	clear(c.matched)
	if c.leading {
		for _, name := range slices.Sorted(maps.Keys(c.consumers)) {
			c.checkTopics(c.consumers[name])
		}
		c.checkShareTopics()
	}
	return c.take()
}

// checkTopics begins a new epoch if the topics are not what the targets were made
// from. A view that is older than that says nothing.
func (c *Coordinator) checkTopics(g *consumerGroup) {
	differ := func() bool {
		r := c.replicated(g)
		return len(r.members) > 0 && c.topics.Index >= r.TopicsIndex && c.hashRead(g) != r.TopicsHash
	}
	if c.topics == nil || len(g.sessions) == 0 || !differ() {
		return
	}
	c.do(g, &consumerOp{change: func(d *draft) error {
		d.stale = d.stale || differ()
		return nil
	}})
}

// hashRead is that of the topics which the group reads.
func (c *Coordinator) hashRead(g *consumerGroup) uint64 {
	seen := map[*Topic]bool{}
	for name := range g.names {
		if t := c.topics.byName[name]; t != nil {
			seen[t] = true
		}
	}
	for p := range g.patterns {
		for _, t := range c.match(p) {
			seen[t] = true
		}
	}
	return sumOf(seen)
}

// topicsOf are the topics that the member reads and that are there, by name.
func (c *Coordinator) topicsOf(m *ConsumerMember) []*Topic {
	var out []*Topic
	for _, name := range m.Topics {
		if t := c.topics.byName[name]; t != nil {
			out = append(out, t)
		}
	}
	if m.Pattern == "" {
		return out
	}
	out = append(out, c.match(m.Pattern)...)
	slices.SortFunc(out, compareTopics)
	return slices.Compact(out)
}

// maxMatched bounds how many patterns' topics are remembered.
const maxMatched = 10_000

// match are the topics whose whole name the pattern matches.
func (c *Coordinator) match(pattern string) []*Topic {
	if out, ok := c.matched[pattern]; ok {
		return out
	}
	if len(c.matched) >= maxMatched {
		clear(c.matched)
	}
	var out []*Topic
	if re, err := compilePattern(pattern); err == nil {
		for _, name := range c.topics.names {
			if re.MatchString(name) {
				out = append(out, c.topics.byName[name])
			}
		}
	}
	c.matched[pattern] = out
	return out
}

// compilePattern makes a pattern match whole names.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(pattern); err != nil { // so that a bracket too many does not find its match in ours
		return nil, err
	}
	return regexp.Compile(`^(?:` + pattern + `)$`)
}

// reads reports whether a member reads the topic.
func (c *Coordinator) reads(g *consumerGroup, id record.TopicID, name string) bool {
	if g.names[name] > 0 {
		return true
	}
	for p := range g.patterns {
		if c.topics == nil || slices.ContainsFunc(c.match(p), func(t *Topic) bool { return t.ID == id }) {
			return true
		}
	}
	return false
}
