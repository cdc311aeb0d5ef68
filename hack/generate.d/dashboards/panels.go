// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

type boardBuilder = dashboard.DashboardBuilder

// Of the 24 columns of a dashboard.
const (
	fullWidth    = 24
	halfWidth    = 12
	numberWidth  = 4
	numberHeight = 4
	graphHeight  = 8
)

// source is the Prometheus that the reader chooses.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

func board(name, uid, description string) *boardBuilder {
	return dashboard.NewDashboardBuilder("SplitFS / "+name).Uid(uid).Description(description).Tags([]string{"splitfs"}).
		Refresh("1m").Time("now-3h", "now").Timezone("browser").Readonly().Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		Link(dashboard.NewDashboardLinkBuilder("SplitFS").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{
			"splitfs",
		}).
			AsDropdown(true).IncludeVars(true).KeepTime(true))
}

// choice is a variable whose values are those of a label; all of them unless the reader chooses.
func choice(name, label, query string) *dashboard.QueryVariableBuilder {
	all := dashboard.VariableOption{
		Selected: cog.ToPtr(true), Text: dashboard.StringOrArrayOfString{String: cog.ToPtr("All")},
		Value: dashboard.StringOrArrayOfString{String: cog.ToPtr("$__all")},
	}
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source()).Query(dashboard.StringOrMap{
		String: cog.ToPtr(query),
	}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).IncludeAll(true).AllValue(".*").Current(all)
}

// query is an expression and what its series are called.
type query struct{ expr, legend string }

// number shows one value, in red where it is above zero and that is bad.
func number(title, unit, description, expr string, bad bool) cog.Builder[dashboard.Panel] {
	steps := []dashboard.Threshold{{Value: nil, Color: "text"}}
	if bad {
		steps = []dashboard.Threshold{{Value: nil, Color: "green"}, {Value: cog.ToPtr(0.000001), Color: "red"}}
	}
	return stat.NewPanelBuilder().Title(title).Description(description).Unit(unit).Span(numberWidth).Height(numberHeight).
		Datasource(source()).ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)).
		GraphMode(common.BigValueGraphModeNone).Orientation(common.VizOrientationAuto).
		WithTarget(prometheus.NewDataqueryBuilder().Datasource(source()).RefId("A").Expr(expr).Instant())
}

// graph shows values over time, two beside each other.
func graph(title, unit, description string, queries ...query) *timeseries.PanelBuilder {
	panel := timeseries.NewPanelBuilder().Title(title).Description(description).Unit(unit).Span(halfWidth).Height(
		graphHeight).
		Datasource(source()).Min(0).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Legend(
			common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeTable).Placement(
				common.LegendPlacementBottom).
				ShowLegend(true).Calcs([]string{"lastNotNull", "max"}))
	for i, q := range queries {
		panel.WithTarget(
			prometheus.NewDataqueryBuilder().Datasource(source()).RefId(string(rune('A' + i))).Expr(q.expr).LegendFormat(
				q.legend).Range())
	}
	return panel
}

// list shows the labels of each series, in this order, and its value under a name.
func list(title, description, expr, value string, columns ...string) cog.Builder[dashboard.Panel] {
	order, names := map[string]int{}, map[string]string{"Value": value}
	for i, column := range columns {
		order[column] = i
	}
	order["Value"] = len(columns)
	hidden := map[string]bool{"Time": true}
	if value == "" {
		hidden["Value"] = true
	}
	return table.NewPanelBuilder().Title(title).Description(description).Span(fullWidth).Height(graphHeight).Datasource(
		source()).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"})).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": hidden, "indexByName": order, "renameByName": names,
		}}).
		WithTarget(
			prometheus.NewDataqueryBuilder().Datasource(source()).RefId("A").Expr(expr).Format(prometheus.PromQueryFormatTable).
				Instant())
}
