package replica

import (
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// applyConfChange makes a committed membership change effective.
func (c *core) applyConfChange(en *raftpb.Entry) {
	data := c.log.at(en.GetIndex()).payload.data
	var cc raftpb.ConfChangeI
	if en.GetType() == raftpb.EntryConfChange {
		var v1 raftpb.ConfChange
		if err := proto.Unmarshal(data, &v1); err != nil {
			panic("replica: committed membership change does not decode: " + err.Error())
		}
		cc = &v1
	} else {
		var v2 raftpb.ConfChangeV2
		if err := proto.Unmarshal(data, &v2); err != nil {
			panic("replica: committed membership change does not decode: " + err.Error())
		}
		cc = &v2
	}
	c.log.conf = c.rn.ApplyConfChange(cc)
}
