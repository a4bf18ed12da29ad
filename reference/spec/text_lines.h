// Lines of a file as any editor wrote them: they end with LF or CRLF, and a mark of UTF-8 before
// the first one is no part of it.

#ifndef REFERENCE_SPEC_TEXT_LINES_H_
#define REFERENCE_SPEC_TEXT_LINES_H_

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace kvcheck {

class TextLines {
 public:
  // content must outlive this.
  explicit TextLines(std::string_view content) : rest_(content) {
    constexpr std::string_view kMark = "\xef\xbb\xbf";
    if (rest_.starts_with(kMark)) rest_.remove_prefix(kMark.size());
  }

  // The next line, without its end; false after the last one.
  bool Next(std::string_view* line) {
    if (rest_.empty()) return false;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    *line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (line->ends_with('\r')) line->remove_suffix(1);
    ++number_;
    return true;
  }
  // Of the line that Next gave last, from 1.
  int64_t number() const { return number_; }

 private:
  std::string_view rest_;
  int64_t number_ = 0;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TEXT_LINES_H_
