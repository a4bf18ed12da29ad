#include "tools/corridor/codec_rule.h"

#include <fmt/format.h>

#include "reference/spec/codec_choices.h"
#include "reference/spec/profile.h"

namespace kvcheck {

CodecRule RuleOf(const KvFormat& format, const std::string& profile) {
  CodecRule rule;
  rule.format = format;
  rule.profile = ParseProfile(profile);
  for (const CodecField& field : CodecFields()) {
    const bool is_said = (" " + profile).find(fmt::format(" {}=", field.key)) != std::string::npos;
    if (is_said && Leaves(format, field.choice)) rule.stated.insert(field.choice);
  }
  return rule;
}

}  // namespace kvcheck
