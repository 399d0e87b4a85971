package meta

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

func (m *Machine) createQueueGroup(im *Image, now time.Time, c *metapb.CreateQueueGroup) Result {
	name, share := c.GetName(), c.GetShare()
	if share != "" {
		g, free, err := im.shareQueueName(share, c.GetTopic())
		if g != nil || err != nil {
			return Result{QueueGroup: g, Err: err}
		}
		name = free
	} else if err := CheckQueueName(name); err != nil {
		return Result{Err: err}
	}
	if im.QueueGroups[name] != nil {
		return Result{Err: fmt.Errorf("%w: %s", ErrQueueGroupExists, name)}
	}
	if len(im.QueueGroups) >= MaxQueueGroups {
		return Result{Err: fmt.Errorf("%w: there are %d, which is the most; delete some", ErrTooManyQueueGroups, len(im.QueueGroups))}
	}
	t, err := m.lookup(im, c.GetTopic())
	if err != nil {
		return Result{Err: err}
	}
	g := &QueueGroup{ID: im.LastQueueGroup + 1, Name: name, Topic: t.ID, Settings: queueSettingsFromPB(c.GetSettings()), Created: now, Version: im.Index, Share: share}
	if err := im.CheckQueueSettings(name, t, g.Settings); err != nil {
		return Result{Err: err}
	}
	im.LastQueueGroup = g.ID
	im.setQueueGroup(g)
	m.note(now, "queue-created", "queue "+name, "queue group %s of topic %s was created", name, t.Name)
	return Result{Topic: t, QueueGroup: g}
}

// CheckQueueSettings tells whether a group of a topic can have these settings, but
// for whether its filter compiles: that is not for a replicated machine to say, as
// another version may see it differently. Errors: queue.ErrInvalidSetting, ErrUnknownTopic.
func (im *Image) CheckQueueSettings(name string, t *Topic, s queue.Settings) error {
	if err := s.Check(); err != nil {
		return err
	}
	switch {
	case s.DeadLetter == "" && name == t.Name:
		// It keeps the topic's dead letters: what fails too often stays.
	case s.DeadLetter == "":
		return fmt.Errorf("%w: dead_letter is empty; it is a topic's name", queue.ErrInvalidSetting)
	case s.DeadLetter == t.Name:
		return fmt.Errorf("%w: dead_letter is %s, which the group reads itself: dead messages would come again; name another topic", queue.ErrInvalidSetting, t.Name)
	case im.ByName[s.DeadLetter] == nil:
		return fmt.Errorf("%w: %s, which dead_letter names", ErrUnknownTopic, s.DeadLetter)
	}
	return nil
}

func (m *Machine) updateQueueGroup(im *Image, now time.Time, c *metapb.UpdateQueueGroup) Result {
	old, err := im.queueByID(c.GetId())
	if err != nil {
		return Result{Err: err}
	}
	if record.Index(c.GetVersion()) != old.Version {
		return Result{Err: fmt.Errorf("%w: settings of queue group %s", queue.ErrConflict, old.Name)}
	}
	g := *old
	g.Settings, g.Version = queueSettingsFromPB(c.GetSettings()), im.Index
	if err := im.CheckQueueSettings(g.Name, im.Topics[g.Topic], g.Settings); err != nil {
		return Result{Err: err}
	}
	if err := checkQueueStays(old.Settings, g.Settings); err != nil {
		return Result{Err: err}
	}
	im.setQueueGroup(&g)
	m.note(now, "queue-altered", "queue "+g.Name, "settings of queue group %s were changed", g.Name)
	return Result{QueueGroup: &g}
}

// checkQueueStays refuses to change what a group's delivery state is built on.
func checkQueueStays(old, next queue.Settings) error {
	field := ""
	switch {
	case old.OrderByKey != next.OrderByKey:
		field = "order"
	case old.Broadcast != next.Broadcast:
		field = "mode"
	case old.AutoAck != next.AutoAck:
		field = "ack"
	case old.StartAtMillis != next.StartAtMillis:
		field = "from"
	default:
		return nil
	}
	return fmt.Errorf("%w: %s of a queue group cannot be changed; create another group", queue.ErrInvalidSetting, field)
}

func (m *Machine) deleteQueueGroup(im *Image, now time.Time, c *metapb.DeleteQueueGroup) Result {
	g, err := im.queueByID(c.GetId())
	if err != nil {
		return Result{Err: err}
	}
	im.cloneQueueGroups()
	delete(im.QueueGroups, g.Name)
	rest := slices.DeleteFunc(slices.Clone(im.queuesByTopic[g.Topic]), func(o *QueueGroup) bool { return o.ID == g.ID })
	if im.queuesByTopic[g.Topic] = rest; len(rest) == 0 {
		delete(im.queuesByTopic, g.Topic)
	}
	m.note(now, "queue-deleted", "queue "+g.Name, "queue group %s was deleted", g.Name)
	return Result{QueueGroup: g}
}

func (m *Machine) pauseQueueGroup(im *Image, now time.Time, c *metapb.PauseQueueGroup) Result {
	old, err := im.queueByID(c.GetId())
	if err != nil || old.Settings.Paused == c.GetOn() {
		return Result{QueueGroup: old, Err: err}
	}
	g := *old
	g.Settings.Paused, g.Version = c.GetOn(), im.Index
	im.setQueueGroup(&g)
	kind, did := "queue-resumed", "goes on"
	if c.GetOn() {
		kind, did = "queue-paused", "is paused"
	}
	m.note(now, kind, "queue "+g.Name, "queue group %s %s", g.Name, did)
	return Result{QueueGroup: &g}
}

// noteQueueRetention makes an event of what retention takes, or is near to taking, from
// a group. The image stays.
func (m *Machine) noteQueueRetention(im *Image, now time.Time, c *metapb.NoteQueueRetention) Result {
	g, err := im.queueByID(c.GetId())
	if err != nil {
		return Result{Err: err}
	}
	where := "its topic"
	if t := im.Topics[g.Topic]; t != nil {
		where = fmt.Sprintf("%s/%d", t.Name, c.GetPartition())
	}
	if n := c.GetMessages(); n > 0 {
		m.note(now, "queue-messages-lost", "queue "+g.Name, "retention takes %s of %s that queue group %s is not done with; raise the topic's retention, or have the log kept with retain-until-consumed",
			count(int(n), "message", "messages"), where, g.Name)
	} else {
		m.note(now, "queue-retention-near", "queue "+g.Name, "queue group %s is behind by %d %% of what retention keeps of %s; at 100 %% messages go that it is not done with",
			g.Name, c.GetUsedPercent(), where)
	}
	return Result{QueueGroup: g}
}

func (im *Image) queueByID(id uint64) (*QueueGroup, error) {
	for _, g := range im.QueueGroups {
		if g.ID == queue.GroupID(id) {
			return g, nil
		}
	}
	return nil, fmt.Errorf("%w: id %d", queue.ErrUnknownGroup, id)
}

func (im *Image) cloneQueueGroups() {
	im.QueueGroups, im.queuesByTopic = maps.Clone(im.QueueGroups), maps.Clone(im.queuesByTopic)
}

// setQueueGroup puts a group in, in maps of its own. A new one has the highest id.
func (im *Image) setQueueGroup(g *QueueGroup) {
	im.cloneQueueGroups()
	im.QueueGroups[g.Name] = g
	of := slices.Clone(im.queuesByTopic[g.Topic])
	if i := slices.IndexFunc(of, func(o *QueueGroup) bool { return o.ID == g.ID }); i >= 0 {
		of[i] = g
	} else {
		of = append(of, g)
	}
	im.queuesByTopic[g.Topic] = of
}

// dropQueueGroupsOf deletes the groups of a topic that is deleted, and counts them.
func (im *Image) dropQueueGroupsOf(topic record.TopicID) int {
	of := im.queuesByTopic[topic]
	if len(of) == 0 {
		return 0
	}
	im.cloneQueueGroups()
	delete(im.queuesByTopic, topic)
	for _, g := range of {
		delete(im.QueueGroups, g.Name)
	}
	return len(of)
}
