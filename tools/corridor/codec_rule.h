// The rule under which stored rows are judged, from a format and a profile.

#ifndef TOOLS_CORRIDOR_CODEC_RULE_H_
#define TOOLS_CORRIDOR_CODEC_RULE_H_

#include <string>

#include "reference/spec/kv_format.h"
#include "reference/spec/tolerance.h"

namespace kvcheck {

// "codec:FORMAT" with those of the format's fields that the text of a profile says: the others take
// what a codec rule expects where it leaves them out. Errors: kParse for a text that is no profile.
CodecRule RuleOf(const KvFormat& format, const std::string& profile);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_CODEC_RULE_H_
