// Numbers for tokens that a file names by their text alone, as OpenAI's log-probabilities do: one
// text has one number in every file that this process reads. Such numbers are above all token ids.

#ifndef TOOLS_AGREE_TOKEN_TEXTS_H_
#define TOOLS_AGREE_TOKEN_TEXTS_H_

#include <cstdint>
#include <string>

namespace kvcheck {

inline constexpr int64_t kFirstTextToken = int64_t{1} << 48;

inline bool IsTextToken(int64_t token) { return token >= kFirstTextToken; }

// Thread-safe. text: bytes of the token.
int64_t TextToken(const std::string& text);

// For a reader: an id as a number, a text in quotes. Thread-safe.
std::string TokenName(int64_t token);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_TOKEN_TEXTS_H_
