// Options that every judging command takes, on its command line.

#ifndef TOOLS_KVCHECK_COMMON_OPTIONS_H_
#define TOOLS_KVCHECK_COMMON_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "tools/kvcheck/report_options.h"

namespace kvcheck {

// Of options that are whole numbers: "010" is ten, and what no 64 bits hold is refused as such.
CLI::Validator Decimal();
// An option that is a number of something, from 1 to `most`.
void AddCountOption(CLI::App* command, const std::string& name, int64_t* value, int64_t most,
                    const std::string& help);
// Makes an empty value of any option of the command and of its subcommands an error: `--layout ''`
// is a variable that was not set, and would count as the option left out.
void RefuseEmptyValues(CLI::App* command);

// Where reports go and what they show: of commands that judge in workers.
void AddReportOptions(CLI::App* command, CommonOptions* options);
// These, and how one case is judged.
void AddCommonOptions(CLI::App* command, CommonOptions* options);
// --max-unproved of the commands that draw cases.
void AddMaxUnprovedOption(CLI::App* command, int* percent);
// --rows and --rows-seed of the commands that judge what others stored or answered.
void AddRowsOptions(CLI::App* command, CommonOptions* options);
// --sample of the commands that re-check stored values.
void AddSampleOption(CLI::App* command, int64_t* sample_rows);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_COMMON_OPTIONS_H_
