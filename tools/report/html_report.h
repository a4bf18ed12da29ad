// The report for a browser: one HTML file without anything to load, summary first, then a row for
// each result, then what is known of those that did not pass (worst element, hint, heat maps, terms
// of the bound, the command that repeats it with a button that copies it). Light and dark,
// narrow and wide, by keyboard. Texts of others are escaped, and characters that act are shown as
// what they are.
//
// The file stays below 2 MB: of results that passed the first kListed are listed, of others as
// many, and the rest is counted; of what did not pass the first kDetailed have their details, as
// long as all details together have no more than kDetailBytes.

#ifndef TOOLS_REPORT_HTML_REPORT_H_
#define TOOLS_REPORT_HTML_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/report/case_result.h"
#include "tools/report/summary.h"

namespace kvcheck {

inline constexpr int64_t kListed = 2000;
inline constexpr int64_t kDetailed = 100;
inline constexpr size_t kDetailBytes = 800'000;

class HtmlReport {
 public:
  // title: of the page ("kvcheck compare").
  explicit HtmlReport(std::string title, bool strict = false);
  void Add(const CaseResult& result);
  // A table of texts below the results. A cell that begins with '!' is a finding, with '=' as it
  // should be; the mark is not shown.
  void AddTable(const std::string& title, const std::string& note,
                const std::vector<std::string>& columns,
                const std::vector<std::vector<std::string>>& rows);
  // The counts and sentences of the run, in place of those of the results alone.
  void SetSummary(Summary summary) { summary_ = std::move(summary); }
  std::string Text() const;
  // Errors: kUnreadableFile.
  void Write(const std::string& path) const;

 private:
  std::string title_;
  bool strict_;
  Summary added_;
  std::optional<Summary> summary_;
  std::string rows_;
  std::string details_;
  std::string tables_;
  int64_t passes_ = 0;
  int64_t others_ = 0;
  int64_t detailed_ = 0;
  int64_t number_ = 0;
};

// A verdict alone, for a page of others (a notebook): no script, styles in place.
std::string HtmlFragment(const Verdict& verdict);

// Text between tags and in quoted attributes.
std::string HtmlText(std::string_view text);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_HTML_REPORT_H_
