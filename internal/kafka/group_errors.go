package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tube-mq/tube/internal/group"
)

// groupErrors maps what group calls answer to the codes that clients know. A
// client that gets one of the first three looks for the coordinator, or tries, again.
var groupErrors = []struct {
	err  error
	code *kerr.Error
}{
	{group.ErrNotCoordinator, kerr.NotCoordinator},
	{group.ErrLoading, kerr.CoordinatorLoadInProgress},
	{group.ErrRebalancing, kerr.RebalanceInProgress},
	{group.ErrInvalidGroup, kerr.InvalidGroupID},
	{group.ErrUnknownMember, kerr.UnknownMemberID},
	{group.ErrMemberIDRequired, kerr.MemberIDRequired},
	{group.ErrFencedInstance, kerr.FencedInstanceID},
	{group.ErrIllegalGeneration, kerr.IllegalGeneration},
	{group.ErrInconsistentProtocol, kerr.InconsistentGroupProtocol},
	{group.ErrSessionTimeout, kerr.InvalidSessionTimeout},
	{group.ErrGroupFull, kerr.GroupMaxSizeReached},
	{group.ErrTooManyGroups, kerr.PolicyViolation},
	{group.ErrTooLarge, kerr.InvalidRequest},
	{group.ErrOffsetMetadata, kerr.OffsetMetadataTooLarge},
	{group.ErrInvalidOffset, kerr.InvalidCommitOffsetSize},
	{group.ErrGroupNotFound, kerr.GroupIDNotFound},
	{group.ErrNonEmpty, kerr.NonEmptyGroup},
	{group.ErrSubscribed, kerr.GroupSubscribedToTopic},
	{group.ErrInvalidRequest, kerr.InvalidRequest},
	{group.ErrFencedEpoch, kerr.FencedMemberEpoch},
	{group.ErrStaleEpoch, kerr.StaleMemberEpoch},
	{group.ErrUnreleasedInstance, kerr.UnreleasedInstanceID},
	{group.ErrUnsupportedAssignor, kerr.UnsupportedAssignor},
	{group.ErrInvalidPattern, kerr.InvalidRegularExpression},
	{group.ErrUnsupportedVersion, kerr.UnsupportedVersion},
}

// groupCode is the wire code of a group call's error; 0 for nil.
func groupCode(err error) int16 {
	if err == nil {
		return 0
	}
	for _, e := range groupErrors {
		if errors.Is(err, e.err) {
			return e.code.Code
		}
	}
	return kerr.UnknownServerError.Code
}

// groupMessage is the text beside a code where the protocol has room for it.
func groupMessage(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	return &s
}

// orEmpty is a nullable string's value.
func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// orNull is "" as null.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
