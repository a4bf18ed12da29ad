// A verdict on its way out of a worker: what decided it, where and by how much, without statistics
// and what was seen of keys, which `kvcheck run` shows.

#ifndef TOOLS_CAMPAIGN_VERDICT_MESSAGE_H_
#define TOOLS_CAMPAIGN_VERDICT_MESSAGE_H_

#include <string>

#include "reference/judge/verdict.h"
#include "tools/process/supervised_child.h"

namespace kvcheck {

struct SignedVerdict {
  Verdict verdict;
  std::string signature;  // of what broke; "" of PASS
};

Message Encode(const SignedVerdict& judged);
// Errors: kUnreadableFile for a message that is none.
SignedVerdict DecodeVerdict(const Message& message);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_VERDICT_MESSAGE_H_
