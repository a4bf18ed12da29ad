#include "tools/report/junit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <pugixml.hpp>
#include <sstream>
#include <utility>

#include "tools/report/output_file.h"
#include "tools/report/shown_text.h"

namespace kvcheck {
namespace {

// What XML 1.0 has no place for becomes U+FFFD, and other characters that act instead of being seen
// are named.
std::string XmlText(std::string_view text, bool keep_lines) {
  std::string clean;
  while (!text.empty()) {
    const Utf8Character character = DecodeUtf8(text);
    const char32_t code = character.code;
    const auto length = static_cast<size_t>(std::max(1, character.length));
    const bool blank = code == '\t' || (keep_lines && (code == '\n' || code == '\r'));
    const bool forbidden = character.length == 0 || code == 0xfffe || code == 0xffff ||
                           (code < 0x20 && code != '\t' && code != '\n' && code != '\r');
    if (forbidden) {
      clean += "\xef\xbf\xbd";
    } else {
      clean += blank ? std::string(text.substr(0, length)) : NameText(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return clean;
}

void Set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name).set_value(XmlText(value, false).c_str());
}

// The element that says how a test case ended; nullptr for one that is as it should be.
const char* ElementOf(Standpoint standpoint) {
  switch (standpoint) {
    case Standpoint::kPassed:
    case Standpoint::kKnownFinding:
      return nullptr;
    case Standpoint::kFailed:
      return "failure";
    case Standpoint::kIllegal:
    case Standpoint::kMistrusted:  // what skips is green, and nothing was proved
      return "error";
    case Standpoint::kExpectedMistrusted:
    case Standpoint::kUnsupported:
      return "skipped";
  }
  return nullptr;
}

// Where the test cases are to stand.
constexpr const char* kPlace = "cases";

// The document without its test cases, whose place a comment holds.
std::string FrameText(const Summary& summary, const std::string& suite) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("testsuites");
  pugi::xml_node node = root.append_child("testsuite");
  const int64_t skipped = summary.expected_mistrusted + summary.unsupported;
  // A run that was interrupted, is empty or proved nothing must not look like a good one.
  const bool proved_nothing = summary.ExitCode() == kExitMistrusted && summary.mistrusted == 0;
  const int64_t run_errors =
      (summary.interrupted ? 1 : 0) + (summary.cases == 0 ? 1 : 0) + (proved_nothing ? 1 : 0);
  for (pugi::xml_node counted : {root, node}) {
    Set(counted, "name", "kvcheck " + suite);
    Set(counted, "tests", fmt::format("{}", summary.cases + run_errors));
    Set(counted, "failures", fmt::format("{}", summary.failed));
    Set(counted, "errors", fmt::format("{}", summary.illegal + summary.mistrusted + run_errors));
    Set(counted, "skipped", fmt::format("{}", skipped));
  }
  node.append_child(pugi::node_comment).set_value(kPlace);
  const auto add_run_error = [&](const char* name, const char* message) {
    pugi::xml_node test = node.append_child("testcase");
    Set(test, "classname", "kvcheck." + suite);
    Set(test, "name", name);
    Set(test.append_child("error"), "message", message);
  };
  if (summary.interrupted)
    add_run_error("interrupted", "the run was interrupted: results are partial");
  if (summary.cases == 0) add_run_error("selection", "nothing was selected");
  if (proved_nothing) {
    add_run_error("nothing proved",
                  "no result passed: all are UNSUPPORTED, or MISTRUSTED as expected");
  }
  std::ostringstream out;
  document.save(out, " ");
  return out.str();
}

}  // namespace

JunitReportWriter::JunitReportWriter(const std::string& path, std::string suite,
                                     const TextOptions& options)
    : path_(path), suite_(std::move(suite)), options_(options), cases_(path) {
  // The file may be all that is left of a run.
  options_.verbose = true;
}

std::string JunitReportWriter::UniqueName(const CaseResult& result) {
  // Names are keys to most readers of JUnit files.
  std::string name = result.name.empty() && !result.verdict.case_text.empty()
                         ? result.verdict.case_text
                         : Title(result);
  // Of a name its hash is kept: there may be millions.
  if (const int64_t earlier = seen_[std::hash<std::string>()(name)]++; earlier > 0) {
    name += fmt::format(" ({})", earlier + 1);
  }
  return name;
}

void JunitReportWriter::Add(const CaseResult& result) {
  pugi::xml_document document;
  pugi::xml_node test = document.append_child("testcase");
  Set(test, "classname", "kvcheck." + suite_);
  Set(test, "name", UniqueName(result));
  if (const char* element = ElementOf(StandpointOf(result, options_.strict))) {
    pugi::xml_node detail = test.append_child(element);
    Set(detail, "message", Headline(result, options_));
    if (std::string(element) != "skipped") {
      Set(detail, "type", std::string(Name(result.verdict.outcome)));
    }
    detail.append_child(pugi::node_pcdata)
        .set_value(XmlText(CaseText(result, options_), true).c_str());
  }
  std::ostringstream out;
  constexpr unsigned kDepth = 2;
  test.print(out, " ", pugi::format_default, pugi::encoding_auto, kDepth);
  cases_.Append(out.str());
}

void JunitReportWriter::Write(const Summary& summary,
                              const std::function<void(std::string_view)>& write) const {
  const std::string frame = FrameText(summary, suite_);
  const std::string place = fmt::format("<!--{}-->", kPlace);
  const size_t at = frame.rfind('\n', frame.find(place)) + 1;
  write(std::string_view(frame).substr(0, at));
  cases_.Read(write);
  write(std::string_view(frame).substr(frame.find('\n', at) + 1));
}

void JunitReportWriter::Finish(const Summary& summary) const {
  OutputFile file(path_);
  Write(summary, [&](std::string_view part) { file.Write(part); });
  file.Commit();
}

std::string JunitReport(std::span<const CaseResult> results, const Summary& summary,
                        const std::string& suite, const TextOptions& options) {
  JunitReportWriter writer("-", suite, options);
  for (const CaseResult& result : results) writer.Add(result);
  std::string text;
  writer.Write(summary, [&](std::string_view part) { text += part; });
  return text;
}

}  // namespace kvcheck
