package vfs

// OpKind says what is done to a file system. Kinds can be joined with |.
type OpKind uint32

// What a hook of Mem sees and what a Fault matches.
const (
	OpOpen OpKind = 1 << iota // of a file that is there
	OpCreate
	OpRead
	OpWrite
	OpTruncate
	OpAllocate
	OpSync
	OpSyncData
	OpRemove
	OpRename
	OpMkdir
	OpSyncDir
	OpList
	OpStat

	OpAny      = OpKind(1<<14 - 1)
	OpAnySync  = OpSync | OpSyncData | OpSyncDir
	OpMutating = OpCreate | OpWrite | OpTruncate | OpAllocate | OpRemove | OpRename | OpMkdir | OpAnySync
)

var opNames = [...]string{"open", "create", "read", "write", "truncate", "allocate", "sync", "syncdata", "remove", "rename", "mkdir", "syncdir", "list", "stat"}

func (k OpKind) String() string {
	s := ""
	for i, name := range opNames {
		if k&(1<<i) != 0 {
			if s != "" {
				s += "|"
			}
			s += name
		}
	}
	return s
}

// Op is one operation.
type Op struct {
	Kind      OpKind
	Path      string // of a rename: where it comes from
	To        string // of a rename
	Offset    int64  // of a read or write
	SizeBytes int64  // of a read, write, truncate, allocate
}
