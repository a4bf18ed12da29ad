// Texts inside a prefix case: runs of token ids, and identities of arbitrary bytes.

#ifndef REFERENCE_SPEC_PREFIX_TOKENS_H_
#define REFERENCE_SPEC_PREFIX_TOKENS_H_

#include <string>
#include <string_view>

#include "reference/spec/prefix_case.h"
#include "reference/spec/text.h"

namespace kvcheck {

// "0,1x4,r7:1024". Errors: kParse.
TokenRuns ParseTokenRuns(Piece piece);
int64_t CountTokens(const TokenRuns& runs);

// %XX for every byte that is no letter, digit or one of ._-/@: and back.
std::string EncodePercent(std::string_view text);
// Errors: kParse for a % without two hexadecimal digits, or a byte that has to be written so.
std::string DecodePercent(Piece piece);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PREFIX_TOKENS_H_
