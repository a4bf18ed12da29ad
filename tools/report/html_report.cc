#include "tools/report/html_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/report/html_page.h"
#include "tools/report/number_text.h"
#include "tools/report/output_file.h"
#include "tools/report/output_text.h"
#include "tools/report/shown_text.h"
#include "tools/report/text_report.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

// How a result stands, as a class of the page's styles and as a word.
std::string_view ClassOf(Standpoint standpoint) {
  switch (standpoint) {
    case Standpoint::kPassed:
    case Standpoint::kExpectedMistrusted:
    case Standpoint::kKnownFinding:
      return "good";
    case Standpoint::kFailed:
    case Standpoint::kIllegal:
      return "bad";
    case Standpoint::kMistrusted:
    case Standpoint::kUnsupported:
      return "open";
  }
  return "open";
}

// The headline without what the row shows in columns of its own: "FAIL  name  SENTENCE"; with what
// the case may have left out.
std::string SentenceOf(const CaseResult& result, const std::string& headline) {
  const std::string missing = PassesWith(result.verdict);
  const std::string text =
      missing.empty() ? "" : NameText("passes with " + missing) + "; as asked: ";
  const size_t first = headline.find("  ");
  const size_t second = first == std::string::npos ? first : headline.find("  ", first + 2);
  return text + (second == std::string::npos ? headline : headline.substr(second + 2));
}

// Up to which |error| over the tolerance a shade of maps goes; the last one has no end.
constexpr double kShadeEnds[] = {0.1, 0.5, 1, 2, 10};

// Shade of |error| over the tolerance, 0 (none judged) to 6 (beyond the last step).
int ShadeOf(double ratio) {
  if (ratio < 0) return 0;
  int shade = 1;
  for (const double step : kShadeEnds) shade += !(ratio <= step) ? 1 : 0;
  return shade;
}

// What the shades of a map mean, beside it.
std::string ShadesText() {
  std::string text;
  const auto add = [&](int shade, const std::string& words) {
    text += fmt::format(
        "<span class=\"key\"><svg width=\"12\" height=\"12\" aria-hidden=\"true\"><rect "
        "class=\"s{}\" width=\"12\" height=\"12\"/></svg>{}</span> ",
        shade, words);
  };
  int shade = 0;
  for (const double step : kShadeEnds) add(++shade, fmt::format("to {:g}", step));
  add(++shade, "more");
  return text;
}

// A picture of at most kCells cells; each tells its coordinates and its ratio.
std::string MapSvg(const HeatMap& map, std::string_view title) {
  constexpr int64_t kCells = 4096;
  const int64_t down = map.down().Cells();
  const int64_t across = map.across().Cells();
  if (map.empty() || down * across > kCells) return "";
  constexpr int kSize = 10;
  std::string cells;
  const auto range = [](const HeatAxis& axis, int64_t cell) {
    const int64_t first = axis.first + cell * axis.width;
    const int64_t last = std::min(first + axis.width, axis.first + axis.extent) - 1;
    return first == last ? fmt::format("{}={}", axis.label, first)
                         : fmt::format("{}={}..{}", axis.label, first, last);
  };
  for (int64_t y = 0; y < down; ++y) {
    // Cells of one shade beside each other are one.
    for (int64_t x = 0, end = 0; x < across; x = end) {
      double ratio = map.At(y, x);
      const int shade = ShadeOf(ratio);
      for (end = x + 1; end < across && ShadeOf(map.At(y, end)) == shade; ++end) {
        ratio = std::max(ratio, map.At(y, end));
      }
      if (shade == 0) continue;
      const std::string where =
          end == x + 1 ? range(map.across(), x)
                       : range(map.across(), x) + " to " + range(map.across(), end - 1);
      cells += fmt::format(
          "<rect class=\"s{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}, {}: {} x "
          "the "
          "tolerance</title></rect>",
          shade, x * kSize, y * kSize, (end - x) * kSize, kSize, HtmlText(range(map.down(), y)),
          HtmlText(where), RatioText(ratio));
    }
  }
  const std::string label = fmt::format("{}: largest error over the tolerance, {} down, {} across",
                                        title, map.down().label, map.across().label);
  return fmt::format(
      "<figure><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><svg "
      "role=\"img\" aria-label=\"{0}\" viewBox=\"0 0 {1} {2}\" width=\"{1}\" "
      "height=\"{2}\">{3}</svg>"
      "</div><figcaption>{0}: {4}</figcaption></figure>\n",
      HtmlText(label), across * kSize, down * kSize, cells, ShadesText());
}

// Class of a change of weight: lost wholly or in part, gained in part or wholly; 0: as it should
// be, as far as its error tells.
int WeightClassOf(double change, double error) {
  constexpr double kToldApart = 5;  // standard errors
  if (!(std::fabs(change) > kToldApart * error)) return 0;
  if (change < 0) return change < -0.5 ? 1 : 2;
  return change > 0.5 ? 4 : 3;
}

// Queries by blocks of keys, head after head: by how much the weights differ from what they should
// be.
std::string WeightsSvg(const SeenKeys& seen, std::string_view title) {
  constexpr int64_t kMostCells = 8192;
  constexpr int kSize = 10;
  if (seen.block == 0 || seen.heads.empty()) return "";
  const int64_t blocks = (seen.kv_len + seen.block - 1) / seen.block;
  std::string cells;
  int64_t y = 0;
  for (const HeadEstimates& head : seen.heads) {
    const int64_t queries = std::ssize(head.queries);
    if ((y + queries) * blocks > kMostCells) break;
    for (int64_t q = 0; q < queries; ++q, ++y) {
      const auto at = [&](int64_t block) { return static_cast<size_t>(q * blocks + block); };
      const auto shade = [&](int64_t block) {
        return WeightClassOf(head.change[at(block)], head.error[at(block)]);
      };
      for (int64_t x = 0, end = 0; x < blocks; x = end) {
        for (end = x + 1; end < blocks && shade(end) == shade(x) && shade(x) == 0;) ++end;
        if (shade(x) == 0) continue;
        cells += fmt::format(
            "<rect class=\"w{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}hq={} l={}, "
            "keys {} to {}: weight changed by {:+.3g} &#177; {:.2g}</title></rect>",
            shade(x), x * kSize, y * kSize, kSize, kSize,
            head.batch > 0 ? fmt::format("b={} ", head.batch) : "", head.head,
            head.queries[static_cast<size_t>(q)], x * seen.block,
            std::min((x + 1) * seen.block, seen.kv_len) - 1, head.change[at(x)], head.error[at(x)]);
      }
    }
  }
  if (cells.empty()) return "";
  const auto key = [&](int shade, std::string_view words) {
    return fmt::format(
        "<span class=\"key\"><svg width=\"12\" height=\"12\" aria-hidden=\"true\"><rect "
        "class=\"w{}\" width=\"12\" height=\"12\"/></svg>{}</span> ",
        shade, words);
  };
  const std::string label = fmt::format(
      "{}: keys that the queries saw, {} rows down (head, query), blocks of {} keys across",
      HtmlText(title), y, seen.block);
  return fmt::format(
      "<figure><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><svg "
      "role=\"img\" aria-label=\"{0}\" viewBox=\"0 0 {1} {2}\" width=\"{1}\" "
      "height=\"{2}\">{3}</svg></div><figcaption>{0}: {4}{5}{6}{7}</figcaption></figure>\n",
      label, blocks * kSize, y * kSize, cells, key(1, "lost"), key(2, "less"), key(3, "more"),
      key(4, "twice, or seen though hidden"));
}

// The named parts of the bound at the worst element, as bars.
std::string TermsTable(const OutputVerdict& output) {
  if (!output.worst || output.worst->terms.empty()) return "";
  std::string rows;
  for (const TermShare& term : output.worst->terms) {
    if (term.value == 0) continue;
    rows += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td><meter min=\"0\" "
        "max=\"1\" "
        "value=\"{:.3f}\" aria-label=\"share of the bound\"></meter></td></tr>",
        HtmlText(term.name), ErrorText(term.value), PercentText(term.share),
        std::clamp(term.share, 0.0, 1.0));
  }
  return fmt::format(
      "<table><caption>The bound of {} at its worst element, {}, by terms</caption>"
      "<thead><tr><th scope=\"col\">term</th><th scope=\"col\">value</th>"
      "<th scope=\"col\">share</th><th scope=\"col\"></th></tr></thead>"
      "<tbody>{}</tbody></table>\n",
      HtmlText(output.name), ErrorText(output.worst->bound), rows);
}

// What explains a result, as an element of its own; "": nothing does.
std::string HintHtml(const CaseResult& result, std::string_view element) {
  const std::string hint = FirstHint(result);
  if (hint.empty()) return "";
  return fmt::format("<{0} class=\"hint\"><b>Hint:</b> {1}</{0}>\n", element, HtmlText(hint));
}

std::string DetailsOf(const CaseResult& result, int64_t number, std::string_view standing,
                      bool strict) {
  TextOptions options;
  options.strict = strict;
  options.verbose = true;
  const std::string text = CaseText(result, options);
  // The maps stand as pictures below; the headline is the heading's.
  std::string lines;
  bool in_map = false;
  for (size_t begin = text.find('\n') + 1; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("  map ")) {
      in_map = true;
    } else if (!line.starts_with("   ")) {
      in_map = false;
    }
    if (!in_map) lines += HtmlText(line) + "\n";
  }
  const std::string headline = Headline(result, options);
  std::string html = fmt::format(
      "<article id=\"r{0}\" data-standing=\"{1}\"><h3><span class=\"tag {1}\">{2}</span> {3}</h3>\n"
      "<p>{4}</p>\n{5}",
      number, standing, HtmlText(Name(result.verdict.outcome)), HtmlText(Title(result)),
      HtmlText(SentenceOf(result, headline)), HintHtml(result, "p"));
  for (const OutputVerdict& output : result.verdict.outputs) {
    if (output.outcome == Outcome::kPass) continue;
    html += MapSvg(output.heat.heads_by_token, output.name);
    html += MapSvg(output.heat.rows_by_channel, output.name);
    if (output.seen) html += WeightsSvg(*output.seen, output.name);
    html += TermsTable(output);
  }
  html += fmt::format(
      "<details open><summary>Everything that is known</summary><pre class=\"scroll\" "
      "tabindex=\"0\">{}</pre></details>\n",
      lines);
  if (!result.verdict.command.empty()) {
    html += fmt::format(
        "<p>Reproduce: <code id=\"c{0}\">{1}</code> <button type=\"button\" "
        "data-copy=\"c{0}\">Copy</button></p>\n",
        number, HtmlText(result.verdict.command));
  }
  return html + "</article>\n";
}

std::string HtmlLines(std::string_view text) {
  std::string lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines += HtmlText(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return lines;
}

std::string SentencesHtml(const std::vector<std::string>& sentences, std::string_view label) {
  if (sentences.empty()) return "";
  std::string items;
  for (const std::string& sentence : sentences) items += "<li>" + HtmlText(sentence) + "</li>";
  return fmt::format("<p>{}</p><ul>{}</ul>\n", label, items);
}

}  // namespace

std::string HtmlText(std::string_view text) {
  std::string escaped;
  for (const char c : NameText(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

HtmlReport::HtmlReport(std::string title, bool strict)
    : title_(std::move(title)), strict_(strict) {}

void HtmlReport::Add(const CaseResult& result) {
  added_.Add(result, strict_);
  if (result.outside) return;  // counted
  const std::string_view standing = ClassOf(StandpointOf(result, strict_));
  const bool good = standing == "good";
  if (++(good ? passes_ : others_) > kListed) return;
  ++number_;
  TextOptions options;
  options.strict = strict_;
  bool has_details = !good && detailed_ < kDetailed;
  if (has_details) {
    std::string details = DetailsOf(result, number_, standing, strict_);
    has_details = details_.size() + details.size() <= kDetailBytes;
    if (has_details) {
      details_ += details;
      ++detailed_;
    }
  }
  const std::string title = HtmlText(Title(result));
  rows_ += fmt::format(
      "<tr data-standing=\"{}\"><td><span class=\"tag {}\">{}</span></td><th scope=\"row\">{}</th>"
      "<td>{}{}</td></tr>\n",
      standing, standing, HtmlText(Name(result.verdict.outcome)),
      has_details ? fmt::format("<a href=\"#r{}\">{}</a>", number_, title) : title,
      HtmlText(SentenceOf(result, Headline(result, options))), good ? "" : HintHtml(result, "div"));
}

void HtmlReport::AddTable(const std::string& title, const std::string& note,
                          const std::vector<std::string>& columns,
                          const std::vector<std::vector<std::string>>& rows) {
  tables_ += fmt::format(
      "<section><h2>{}</h2><p>{}</p><div class=\"scroll\" tabindex=\"0\" "
      "role=\"region\" aria-label=\"{}\"><table><thead><tr>",
      HtmlText(title), HtmlText(note), HtmlText(title));
  for (const std::string& column : columns) {
    tables_ += "<th scope=\"col\">" + HtmlText(column) + "</th>";
  }
  tables_ += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    tables_ += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      std::string_view cell = row[i];
      std::string_view kind;
      if (cell.starts_with("!")) kind = " class=\"bad\"";
      if (cell.starts_with("=")) kind = " class=\"good\"";
      if (!kind.empty()) cell.remove_prefix(1);
      tables_ += i == 0 ? fmt::format("<th scope=\"row\"{}>{}</th>", kind, HtmlText(cell))
                        : fmt::format("<td{}>{}</td>", kind, HtmlText(cell));
    }
    tables_ += "</tr>\n";
  }
  tables_ += "</tbody></table></div></section>\n";
}

std::string HtmlReport::Text() const {
  const Summary& summary = summary_ ? *summary_ : added_;
  std::string text = fmt::format("{}<title>{}</title>\n<style>{}</style>\n</head><body><main>\n",
                                 kHtmlHead, HtmlText(title_), kHtmlStyle);
  text += fmt::format("<h1>{}</h1>\n<p>{}</p>\n", HtmlText(title_), HtmlText(Print(summary)));
  text += SentencesHtml(summary.patterns, "What failures have in common");
  text += SentencesHtml(summary.notes, "Notes");
  if (!rows_.empty()) {
    text += kHtmlFilter;
    text +=
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Results\"><table "
        "id=\"results\"><caption>Results</caption><thead><tr><th scope=\"col\">outcome</th>"
        "<th scope=\"col\">name</th><th scope=\"col\">what was found</th></tr></thead><tbody>\n";
    text += rows_;
    text += "</tbody></table></div>\n";
  }
  for (const auto& [count, what] :
       {std::pair{passes_, "as they should be"}, std::pair{others_, "failed or unproved"}}) {
    if (count > kListed) {
      text += fmt::format("<p>{} more results, {}, are not listed.</p>\n", count - kListed, what);
    }
  }
  if (others_ > detailed_ && detailed_ > 0) {
    text += fmt::format("<p>Of {} that did not pass, {} are shown in detail.</p>\n", others_,
                        detailed_);
  }
  text += tables_;
  if (!details_.empty()) text += "<h2>What did not pass</h2>\n" + details_;
  return text +
         fmt::format("<footer><p>{}</p></footer></main>\n<script>{}</script></body></html>\n",
                     HtmlText(ToolVersion()), kHtmlScript);
}

void HtmlReport::Write(const std::string& path) const { WriteOutput(path, Text()); }

std::string HtmlFragment(const Verdict& verdict) {
  CaseResult result;
  result.verdict = verdict;
  const std::string_view standing = ClassOf(StandpointOf(result, false));
  const char* colour = standing == "good" ? "#1a7f37" : standing == "bad" ? "#cf222e" : "#9a6700";
  TextOptions whole;
  whole.verbose = true;
  return fmt::format(
      "<div><b style=\"color:{}\">{}</b><pre style=\"overflow-x:auto\">{}</pre>"
      "<details><summary>Everything that is known</summary><pre style=\"overflow-x:auto\">{}</pre>"
      "</details></div>",
      colour, HtmlText(Name(verdict.outcome)), HtmlLines(CaseText(result, {})),
      HtmlLines(CaseText(result, whole)));
}

}  // namespace kvcheck
