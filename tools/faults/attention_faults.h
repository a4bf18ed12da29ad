// The catalogue of attention faults: each is the definition with exactly one named rule replaced.
// What public report a fault stands for is in catalogue.md beside this file.

#ifndef TOOLS_FAULTS_ATTENTION_FAULTS_H_
#define TOOLS_FAULTS_ATTENTION_FAULTS_H_

#include <span>
#include <string_view>

#include "reference/attention/rules.h"
#include "reference/spec/case.h"

namespace kvcheck {

struct AttentionFault {
  std::string_view id;           // "last_key_dropped"
  std::string_view description;  // what is wrong, in one line
  std::string_view report;       // an entry of the catalogue of public faults that it stands for
  // The definition with this rule replaced.
  AttentionRules (*rules)();
  // What a case needs for the fault to be able to show ("" : nothing), in words.
  std::string_view needs;
  // True where the case meets that need.
  bool (*applies)(const AttentionCase& c);
};

std::span<const AttentionFault> AttentionFaults();
// nullptr when there is none of this id.
const AttentionFault* FindAttentionFault(std::string_view id);

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_ATTENTION_FAULTS_H_
