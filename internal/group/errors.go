package group

import (
	"errors"
	"fmt"
)

// What a group call may answer. Doors map these (with errors.Is) to wire codes.
var (
	// ErrNotCoordinator: another node leads the group's shard, or none does now.
	ErrNotCoordinator = errors.New("not the coordinator of the group")
	// ErrLoading: the coordinator had to read the group again, as the outcome of
	// a change was not known; retry at once.
	ErrLoading = errors.New("coordinator is loading the group")
	// ErrInvalidGroup: the group's name is empty or too long.
	ErrInvalidGroup = errors.New("invalid group name")
	// ErrUnknownMember: no such member in the group: join again without an id.
	ErrUnknownMember = errors.New("unknown group member")
	// ErrMemberIDRequired: join again with the id in the answer (KIP-394).
	ErrMemberIDRequired = errors.New("member id required: join again with the one given")
	// ErrFencedInstance: a newer process uses this instance id (KIP-345).
	ErrFencedInstance = errors.New("instance id is in use by a newer member")
	// ErrIllegalGeneration: the caller's generation is not the group's.
	ErrIllegalGeneration = errors.New("illegal generation")
	// ErrRebalancing: the group is between two generations: join again.
	ErrRebalancing = errors.New("group is rebalancing")
	// ErrInconsistentProtocol: no protocol in common with the other members.
	ErrInconsistentProtocol = errors.New("inconsistent group protocol")
	// ErrSessionTimeout: not within the configured limits.
	ErrSessionTimeout = errors.New("session timeout outside the limits")
	// ErrGroupFull: the group has as many members, or their metadata as many
	// bytes, as the configuration allows.
	ErrGroupFull = errors.New("group is full")
	// ErrTooManyGroups: the shard has as many groups as the configuration allows.
	ErrTooManyGroups = errors.New("too many groups")
	// ErrShardFull: the groups of the shard take as many bytes as the
	// configuration allows. It is an ErrTooManyGroups to who does not look closer.
	ErrShardFull = fmt.Errorf("%w: their members and positions take as much memory as is allowed; delete groups that nobody needs", ErrTooManyGroups)
	// ErrTooLarge: an assignment or a request is larger than a group may be.
	ErrTooLarge = errors.New("group data too large")
	// ErrOffsetMetadata: the text committed with an offset is too long.
	ErrOffsetMetadata = errors.New("offset metadata too large")
	// ErrInvalidOffset: an offset is committed for a negative partition.
	ErrInvalidOffset = errors.New("invalid offset")
	// ErrGroupNotFound: there is no such group.
	ErrGroupNotFound = errors.New("no such group")
	// ErrNonEmpty: the group still has members.
	ErrNonEmpty = errors.New("group is not empty")
	// ErrSubscribed: a member of the group still reads the topic.
	ErrSubscribed = errors.New("group is subscribed to the topic")
	// ErrInvalidRequest: the request contradicts itself.
	ErrInvalidRequest = errors.New("invalid group request")

	// ErrFencedEpoch: the member's epoch is not what it was given: drop what it
	// reads and join again.
	ErrFencedEpoch = errors.New("fenced member epoch")
	// ErrStaleEpoch: the member has a newer epoch; heartbeat and try again.
	ErrStaleEpoch = errors.New("stale member epoch")
	// ErrUnreleasedInstance: another member uses the instance id and has not left.
	ErrUnreleasedInstance = errors.New("instance id is still in use by another member")
	// ErrUnsupportedAssignor: there is no such server-side assignor.
	ErrUnsupportedAssignor = errors.New("unsupported assignor")
	// ErrInvalidPattern: the subscription's regular expression cannot be used.
	ErrInvalidPattern = errors.New("invalid regular expression")
	// ErrUnsupportedVersion: the call is too old for a member of such a group.
	ErrUnsupportedVersion = errors.New("unsupported version")

	// ErrConflict: the group is no longer what the command was built on. It does
	// not leave the coordinator.
	ErrConflict = errors.New("group changed meanwhile")
	// ErrUnknownCommand: this binary does not know the command, or cannot decode
	// it. The replica must stop rather than go on with another state than the rest.
	ErrUnknownCommand = errors.New("unknown group command: written by a newer version, or damaged")
)
