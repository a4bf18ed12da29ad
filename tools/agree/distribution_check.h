// Whether the numbers of one position can be a distribution at all, as far as the errors that the
// file states leave it open.
//
// An engine's probabilities of the listed tokens sum to at most 1, those of all tokens to 1, up to
// the relative error s of the sum that it normalized by. The file shows each log p within e (error
// and rounding of TokenDistribution), so that
//
//   log p <= e                             a sum is never below one of its terms, however it rounds
//   sum of p e^-e over log p > floor  <= 1 + s
//   sum of p e^e  >= 1 - s                 where every token of the vocabulary is there
//   log p of the first >= log((1 - s) / 2^32) - e  of a list of the most likely tokens
//
// A number at the floor may stand for any smaller one: nothing of it is sure.

#ifndef TOOLS_AGREE_DISTRIBUTION_CHECK_H_
#define TOOLS_AGREE_DISTRIBUTION_CHECK_H_

#include <cstdint>
#include <string>

#include "tools/agree/logits_dump.h"

namespace kvcheck {

// Below +inf and no NaN, all of them; -inf is a probability of 0.
bool IsFinite(const TokenDistribution& position);

// A position with NaN or +inf passes: that an engine has said so is for the reader to judge.
// at, path: of the position, for the message. Errors: kUnreadableFile.
void CheckDistribution(const TokenDistribution& position, int64_t at, const std::string& path);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_DISTRIBUTION_CHECK_H_
