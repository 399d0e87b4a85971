package kafka

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxCounted bounds the parts of one response that are looked at for errors.
const maxCounted = 256

// countErrors counts the error codes of a response, wherever they stand in it.
// It is for the calls off the data path: it goes by reflection so that no handler
// has to think of it.
func countErrors(to Calls, api string, resp kmsg.Response) {
	if _, nobody := to.(noCalls); nobody {
		return
	}
	left := maxCounted
	countIn(reflect.ValueOf(resp).Elem(), &left, func(code int16) { to.Error(api, errorName(code)) })
}

func countIn(v reflect.Value, left *int, count func(int16)) {
	for i := range v.NumField() {
		f := v.Field(i)
		if *left <= 0 {
			return
		}
		switch {
		case f.Kind() == reflect.Int16 && v.Type().Field(i).Name == "ErrorCode":
			if f.Int() != 0 {
				count(int16(f.Int()))
			}
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for j := 0; j < f.Len() && *left > 0; j++ {
				*left--
				countIn(f.Index(j), left, count)
			}
		}
	}
}
